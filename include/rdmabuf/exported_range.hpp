// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/fork.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// A range of a dma-buf that somebody else owns: what registration needs.
struct DmaBufRange {
    int fd = -1;
    /// Where the range begins in the dma-buf, in bytes.
    std::uint64_t offset = 0;
    /// In bytes.
    std::size_t length = 0;
    /// Where the range begins in the exporter's address space; 0 when unknown.
    std::uintptr_t address = 0;
};

/// How a dma-buf reaches the importer.
enum class MappingKind : std::uint8_t {
    /// The exporter's default.
    standard,
    /// Through the PCIe BAR even where the exporter has a faster way of its own (NVIDIA GB200).
    pcie,
};

/// A range that an exporter gave out. Owns the descriptor, and gives it back in the exporter's own
/// way: not every driver wants close(2). Export once, register on any number of protection domains,
/// then drop it.
class RDMABUF_EXPORT ExportedRange {
  public:
    /// How the exporter wants its descriptor back. Called once, with the descriptor; must not
    /// throw.
    using Release = std::function<void(int)>;

    /// A range whose descriptor is closed with close(2).
    ExportedRange(std::string exporter, UniqueFd fd, std::uint64_t offset, std::size_t length,
                  std::uintptr_t address, MappingKind mapping = MappingKind::standard);
    /// A range whose descriptor goes back through @p release. Should this constructor throw, the
    /// descriptor has been released.
    ExportedRange(std::string exporter, int fd, Release release, std::uint64_t offset,
                  std::size_t length, std::uintptr_t address,
                  MappingKind mapping = MappingKind::standard);

    /// The range, without its ownership: what DmaBufMR takes.
    [[nodiscard]] DmaBufRange range() const noexcept {
        return {.fd = fd(), .offset = offset_, .length = length_, .address = address_};
    }
    /* implicit */ operator DmaBufRange() const noexcept { return range(); }

    [[nodiscard]] int fd() const noexcept { return held_->fd.get(); }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    /// How it reaches the importer: an exporter asked for MappingKind::pcie may have fallen back.
    [[nodiscard]] MappingKind mapping() const noexcept { return mapping_; }
    /// The name of the exporter it came from.
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
