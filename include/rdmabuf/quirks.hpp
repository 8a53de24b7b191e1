// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/detail/export.hpp>

/// Tables of known limits of drivers that export or import dma-bufs. The entries come from the
/// sources of Linux up to 7.3 and rdma-core up to 65; no entry was verified on hardware. The
/// library uses the tables in the hints of errors, and docs/registration.md contains them. The
/// library skips no registration because of an entry.
namespace rdmabuf {

/// How the driver of a NIC handles a dma-buf that is registered.
enum class ImportMode : std::uint8_t {
    /// The driver cannot register dma-bufs.
    none,
    /// The driver pins the dma-buf while it is registered. The exporter may move the memory before
    /// the driver pins it.
    pinned,
    /// The driver pins the dma-buf, and allows the exporter to revoke it.
    pinned_revocable,
    /// The driver does not pin the dma-buf. When the exporter moves the memory, the driver updates
    /// its mapping. The exporter can also revoke the dma-buf.
    follows_moves,
};
/// Returns "none", "pinned", "pinned, revocable" or "follows moves".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(ImportMode mode) noexcept;

struct ImporterQuirk {
    /// The name of the RDMA driver, such as "mlx5".
    std::string_view driver;
    /// The names that Device::driver() returns for NICs of this driver, separated by spaces. Empty
    /// if Device::driver() returns no name that belongs only to this entry.
    std::string_view sysfs_drivers;
    /// The first versions of Linux and of rdma-core in which this driver registers dma-bufs. Empty
    /// if no version does.
    std::string_view kernel;
    std::string_view rdma_core;
    ImportMode mode;
    /// Further limits, as text; may be empty.
    std::string_view note;
};

/// The behaviour of an exporter when an importer pins a buffer of this exporter.
enum class PinBehaviour : std::uint8_t {
    /// The buffer stays where it is.
    in_place,
    /// The buffer may be moved to system memory, and the registration still succeeds. Transfers
    /// then cross PCIe twice, or access a copy.
    system_memory,
    /// The exporter refuses to pin the buffer: only importers that do not pin buffers can register
    /// this buffer.
    refused,
};
/// Returns "in place", "moves to system memory" or "refused".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(PinBehaviour behaviour) noexcept;

struct ExporterQuirk {
    /// Exporter::name(). If this library has no exporter for the memory, the name of the kernel's
    /// exporter.
    std::string_view exporter;
    PinBehaviour pin;
    /// The conditions under which the exporter refuses an importer, and the errno value; may be
    /// empty.
    std::string_view refuses;
    std::string_view note;
};

[[nodiscard]] RDMABUF_EXPORT std::span<const ImporterQuirk> importer_quirks() noexcept;
[[nodiscard]] RDMABUF_EXPORT std::span<const ExporterQuirk> exporter_quirks() noexcept;

/// Returns the entry for @p driver, which is the name of an RDMA driver or a name that
/// Device::driver() returned. Returns nullptr if the table has no such entry.
[[nodiscard]] RDMABUF_EXPORT const ImporterQuirk* find_importer_quirk(
    std::string_view driver) noexcept;
[[nodiscard]] RDMABUF_EXPORT const ExporterQuirk* find_exporter_quirk(
    std::string_view exporter) noexcept;

} // namespace rdmabuf
