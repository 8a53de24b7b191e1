// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// Memory whose owner has it as a dma-buf already.
struct ExternalMemory {
    /// What the program calls its first byte: a CPU pointer, a device pointer, or any number that
    /// is unique among the addresses of its resolver. Not 0, which stands for an unknown address.
    std::uintptr_t address = 0;
    /// In bytes.
    std::size_t length = 0;
    /// Where it begins in the dma-buf, in bytes. As far into its page as the address is into its
    /// own: a NIC calls memory by its address by default, and can call it only by numbers of the
    /// same page offset.
    std::uint64_t offset = 0;
    MemoryKind kind = MemoryKind::device;
    /// "0000:3b:00.0" of the device that holds it; may be empty.
    std::string pci_address = {};
    /// The owner's, where it counts its allocations: it must differ from that of all memory that
    /// was at this address before, so an owner that counts gives one each time. 0: one is given
    /// that differs from all that were given so.
    std::uint64_t generation = 0;
};

/// "external": memory that a program has the descriptors of: of a library that is not known here,
/// or of another process. It knows what it is told of, and makes nothing.
///
/// Not in Resolver::system(), as it begins empty:
///
///     auto external = make_external_exporter();
///     Resolver resolver = Resolver::system();
///     resolver.add(external);
///     const AddedRange range = external->add(fd, {.address = pointer, .length = size});
class RDMABUF_EXPORT ExternalExporter : public Exporter {
  public:
    /// Makes the memory known until the AddedRange is gone. @p fd stays the caller's: the exporter
    /// has one of its own, close-on-exec, of the same dma-buf, and so has everything exported.
    ///
    /// @throws Error
    ///   - EBADF: the descriptor is not open; EMFILE: the process has no more
    ///   - EINVAL: a length of 0, an address of 0, an address or an offset with a length that
    ///     overflows, page offsets that differ
    ///   - ERANGE: the memory ends behind the dma-buf, where that can tell its size (lseek(2))
    ///   - EEXIST: it overlaps memory that is known already; the hint names both
    [[nodiscard]] virtual AddedRange add(int fd, const ExternalMemory& memory) = 0;
    /// The same with a descriptor that becomes the exporter's; when this throws, it is closed.
    [[nodiscard]] virtual AddedRange add(UniqueFd fd, const ExternalMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<ExternalExporter> make_external_exporter();

} // namespace rdmabuf
