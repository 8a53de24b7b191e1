// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// A range of a dma-buf that DmaBufMR can register. The structure does not own the descriptor and
/// does not close it.
struct DmaBufRange {
    int fd = -1;
    /// The offset of the range in the dma-buf, in bytes.
    std::uint64_t offset = 0;
    /// The length of the range in bytes.
    std::size_t length = 0;
    /// The address of the range in the exporter's address space: a CPU or a device pointer, or 0 if
    /// the address is unknown.
    std::uintptr_t address = 0;
};

/// The path on which NICs access the memory of a dma-buf: PCIe or a chip-to-chip link. The exporter
/// maps the dma-buf for one path.
enum class MappingKind : std::uint8_t {
    /// The exporter selects the path.
    standard,
    /// NICs access the memory through the PCIe BAR of the device, even if the device has a faster
    /// path, for example NVLink-C2C of the NVIDIA GB200.
    pcie,
};

/// A range that an exporter has exported as a dma-buf. The object owns the descriptor of the
/// dma-buf. The destructor releases the descriptor as the exporter's driver requires, which is not
/// always close(2). Objects can be moved but not copied. A program exports a range once, registers
/// it on any number of protection domains, and then destroys the ExportedRange. If
/// Allocation::single_import is set, it must export the range for each registration.
class RDMABUF_EXPORT ExportedRange {
  public:
    /// A function of the exporter that releases the descriptor, which is its argument. The function
    /// is called once and must not throw.
    using Release = std::function<void(int)>;

    /// Takes ownership of @p fd. The destructor releases @p fd with close(2).
    /// @param exporter  the name of the exporter
    /// @param offset    the offset of the range in the dma-buf, in bytes
    /// @param length    in bytes
    /// @param address   the address of the range in the exporter's address space; 0 if unknown
    /// @param mapping   the mapping of the dma-buf, which determines how NICs access the memory
    ExportedRange(std::string exporter, UniqueFd fd, std::uint64_t offset, std::size_t length,
                  std::uintptr_t address, MappingKind mapping = MappingKind::standard);
    /// Takes ownership of @p fd. The destructor calls @p release with @p fd. If this constructor
    /// throws, it has already called @p release. The other parameters are those of the constructor
    /// above.
    ExportedRange(std::string exporter, int fd, Release release, std::uint64_t offset,
                  std::size_t length, std::uintptr_t address,
                  MappingKind mapping = MappingKind::standard);

    /// Converts to a DmaBufRange. The descriptor in the result is valid until this object is
    /// destroyed, so a temporary object cannot be converted.
    /* implicit */ operator DmaBufRange() const& noexcept {
        return {.fd = fd(), .offset = offset_, .length = length_, .address = address_};
    }
    operator DmaBufRange() const&& = delete;

    [[nodiscard]] int fd() const noexcept { return held_->fd.get(); }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    /// Returns the mapping that the exporter has used. The result may be MappingKind::standard even
    /// if the program requested MappingKind::pcie: see Exporter::export_range().
    [[nodiscard]] MappingKind mapping() const noexcept { return mapping_; }
    /// Returns the name of the exporter, as Exporter::name() returns it.
    [[nodiscard]] const std::string& exporter() const noexcept { return exporter_; }

  private:
    struct Held {
        UniqueFd fd;
        Release release;
        detail::CreatorProcess creator;
        Held() = default;
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held();
    };
    static std::unique_ptr<Held> hold(UniqueFd fd, Release release);

    std::unique_ptr<Held> held_;
    std::uint64_t offset_;
    std::size_t length_;
    std::uintptr_t address_;
    MappingKind mapping_;
    std::string exporter_;
};

} // namespace rdmabuf
