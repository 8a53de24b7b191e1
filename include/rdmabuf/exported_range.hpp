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

/// A range of a dma-buf that DmaBufMR can register. The structure borrows the descriptor and does
/// not close the descriptor.
struct DmaBufRange {
    int fd = -1;
    /// The offset of the range in the dma-buf, in bytes.
    std::uint64_t offset = 0;
    /// The length of the range in bytes.
    std::size_t length = 0;
    /// The address of the range in the exporter's address space, a CPU or a device pointer; 0 if it
    /// is unknown.
    std::uintptr_t address = 0;
};

/// The PCIe or chip-to-chip path on which the NIC accesses the memory of a dma-buf. The exporter
/// maps the dma-buf for one of these paths.
enum class MappingKind : std::uint8_t {
    /// The exporter selects the path.
    standard,
    /// The PCIe BAR of the device, even if the device has a faster path, for example NVLink-C2C of
    /// the NVIDIA GB200.
    pcie,
};

/// A range that an exporter has exported as a dma-buf. Owns the descriptor and releases it as the
/// exporter's driver requires, which is not always close(2). Objects can be moved but not copied.
/// Export a range once, register it on any number of protection domains, then destroy the
/// ExportedRange.
class RDMABUF_EXPORT ExportedRange {
  public:
    /// A function of the exporter that releases the descriptor. It is called once, with the
    /// descriptor, and must not throw.
    using Release = std::function<void(int)>;

    /// Takes ownership of @p fd, which is released with close(2).
    /// @param exporter  the name of the exporter
    /// @param offset    the offset of the range in the dma-buf, in bytes
    /// @param length    in bytes
    /// @param address   the address of the range in the exporter's address space; 0 if unknown
    /// @param mapping   the mapping of the dma-buf, which determines how NICs access the memory
    ExportedRange(std::string exporter, UniqueFd fd, std::uint64_t offset, std::size_t length,
                  std::uintptr_t address, MappingKind mapping = MappingKind::standard);
    /// Takes ownership of @p fd and releases it by calling @p release, also if this constructor
    /// throws. The other parameters are those of the constructor above.
    ExportedRange(std::string exporter, int fd, Release release, std::uint64_t offset,
                  std::size_t length, std::uintptr_t address,
                  MappingKind mapping = MappingKind::standard);

    /// Returns the range in the form that DmaBufMR takes. The result borrows the descriptor of this
    /// object.
    [[nodiscard]] DmaBufRange range() const noexcept {
        return {.fd = fd(), .offset = offset_, .length = length_, .address = address_};
    }
    /* implicit */ operator DmaBufRange() const noexcept { return range(); }

    [[nodiscard]] int fd() const noexcept { return held_->fd.get(); }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    /// The mapping that the exporter has used. It may be MappingKind::standard although
    /// MappingKind::pcie was requested: see Exporter::export_range().
    [[nodiscard]] MappingKind mapping() const noexcept { return mapping_; }
    /// The name of the exporter, as Exporter::name() returns it.
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
