// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// Describes memory for which the program already has a dma-buf.
struct ExternalMemory {
    /// Address that the program uses for the first byte: a CPU pointer, a device pointer, or any
    /// number that no other memory in the same Resolver uses. If another exporter knows the pointer
    /// as well, Resolver and register_memory() use the dma-buf that was added here, unless `kind`
    /// is MemoryKind::pinned_host. The address must not be 0, because 0 means an unknown address.
    std::uintptr_t address = 0;
    /// Length in bytes.
    std::size_t length = 0;
    /// Offset of the first byte in the dma-buf, in bytes. The offset and the address must be equal
    /// modulo the page size. The reason is that the address is the default iova of a memory region,
    /// and a NIC requires that the iova and the offset are equal modulo the page size.
    std::uint64_t offset = 0;
    MemoryKind kind = MemoryKind::device;
    /// PCI address of the device that holds the memory, such as "0000:3b:00.0". May be empty.
    std::string pci_address = {};
    /// Generation of the allocation: a number that differs from the numbers of all earlier
    /// allocations at this address. If it is 0, the exporter assigns a number that it has not
    /// assigned before. A registration cache with CachePolicy::checked, and
    /// RegisteredMemory::verify(), compare the numbers: see AddedRange.
    std::uint64_t generation = 0;
    /// The mapping with which the dma-buf was exported. MappingKind::pcie allows register_memory()
    /// to use the dma-buf for a NIC that needs this mapping, such as EFA or data direct of mlx5.
    /// The exporter cannot check the value.
    MappingKind mapping = MappingKind::standard;
};

/// The exporter "external" exports memory whose dma-buf descriptors the program has, for example
/// from a library that rdmabuf does not support, or from another process. It finds only memory that
/// was passed to add(), and cannot allocate.
///
/// It is not part of Resolver::system(), because it is empty at first:
///
///     auto external = make_external_exporter();
///     Resolver resolver = Resolver::system();
///     resolver.add(external);
///     const AddedRange range = external->add(fd, {.address = pointer, .length = size});
///
/// Some drivers permit only one memory region for each dma-buf (Neuron: a second import fails with
/// EPERM). All exports of an added range are the same dma-buf, so such memory can be registered
/// with one NIC, in one region. For several NICs, use the exporter of the driver (NeuronExporter),
/// or an Exporter of your own that creates a dma-buf for each export and sets
/// Allocation::single_import.
class RDMABUF_EXPORT ExternalExporter : public Exporter {
  public:
    /// Adds memory to the exporter, until the returned AddedRange is destroyed. The caller keeps
    /// ownership of @p fd: the exporter duplicates the descriptor, and duplicates it again for each
    /// exported range. The duplicates are close-on-exec.
    ///
    /// @throws Error
    ///   - EBADF: the descriptor is not open, or the UniqueFd is empty
    ///   - EMFILE: the process has no free descriptors
    ///   - EINVAL: the length or the address is 0, the end of the memory overflows 64 bits, the
    ///     address and the offset differ modulo the page size, the PCI address is malformed, or the
    ///     file has no bytes, as an empty file or a pipe. A descriptor of another file that is not
    ///     a dma-buf is refused by the registration
    ///   - ERANGE: the memory ends after the end of the dma-buf
    ///   - EEXIST: the memory overlaps memory that was added before; the error text names both
    ///     ranges
    [[nodiscard]] virtual AddedRange add(int fd, const ExternalMemory& memory) = 0;
    /// This overload takes ownership of the descriptor. If the call throws, the descriptor is
    /// closed.
    [[nodiscard]] virtual AddedRange add(UniqueFd fd, const ExternalMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<ExternalExporter> make_external_exporter();

} // namespace rdmabuf
