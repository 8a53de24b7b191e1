// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/detail/export.hpp>

/// Tables of known limits of drivers that export or import dma-bufs. The entries come from the
/// sources of Linux up to 7.3 and rdma-core up to 65; no entry was verified on hardware. The
/// library uses the tables for the hints of errors only: no entry prevents a registration.
/// docs/registration.md contains the tables.
namespace rdmabuf {

/// The behaviour of the driver of a NIC when a dma-buf is registered.
enum class ImportMode : std::uint8_t {
    /// The driver cannot register dma-bufs.
    none,
    /// The driver pins the dma-buf from the registration to the deregistration. The exporter can
    /// move the memory before the driver pins the dma-buf.
    pinned,
    /// The driver pins the dma-buf. The exporter can revoke the dma-buf while it is pinned.
    pinned_revocable,
    /// The driver does not pin the dma-buf. When the exporter moves the memory, the driver updates
    /// the mapping of the NIC. The exporter can also revoke the dma-buf.
    follows_moves,
};
/// Returns "none", "pinned", "pinned, revocable" or "follows moves".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(ImportMode mode) noexcept;

struct ImporterQuirk {
    /// The name of the RDMA driver, such as "mlx5".
    std::string_view driver;
    /// The names that Device::driver() returns for NICs of this driver, separated by spaces. Empty
    /// for an entry about a feature of a driver (mlx5 data direct), because the names then belong
    /// to the entry of the driver itself.
    std::string_view sysfs_drivers;
    /// The first version of Linux in which this driver can register dma-bufs. Empty if no version
    /// can register dma-bufs.
    std::string_view kernel;
    /// The first version of rdma-core in which the provider of this driver can register dma-bufs.
    /// Empty if no version can register dma-bufs.
    std::string_view rdma_core;
    ImportMode mode;
    /// A text with further limits of the driver; can be empty.
    std::string_view note;
};

/// The behaviour of an exporter when an importer pins a buffer of this exporter.
enum class PinBehaviour : std::uint8_t {
    /// The exporter pins the buffer without moving it.
    in_place,
    /// The exporter can move the buffer to system memory before pinning it. The registration still
    /// succeeds. The data of transfers then crosses PCIe twice, or transfers access a copy of the
    /// buffer.
    system_memory,
    /// The exporter refuses to pin the buffer: only importers that do not pin buffers can register
    /// this buffer.
    refused,
};
/// Returns "in place", "moves to system memory" or "refused".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(PinBehaviour behaviour) noexcept;

struct ExporterQuirk {
    /// The name of the exporter: the value of Exporter::name(), or the name of the exporter in the
    /// kernel if this library has no Exporter for the memory.
    std::string_view exporter;
    PinBehaviour pin;
    /// A text with the conditions under which the exporter refuses an importer, and the errno value
    /// of the refusal; can be empty.
    std::string_view refuses;
    std::string_view note;
};

[[nodiscard]] RDMABUF_EXPORT std::span<const ImporterQuirk> importer_quirks() noexcept;
[[nodiscard]] RDMABUF_EXPORT std::span<const ExporterQuirk> exporter_quirks() noexcept;

/// Returns the entry for @p driver: the name of an RDMA driver ("mlx5"), or a result of
/// Device::driver() ("mlx5_core"). Returns nullptr if the table has no entry for this driver.
[[nodiscard]] RDMABUF_EXPORT const ImporterQuirk* find_importer_quirk(
    std::string_view driver) noexcept;
[[nodiscard]] RDMABUF_EXPORT const ExporterQuirk* find_exporter_quirk(
    std::string_view exporter) noexcept;

} // namespace rdmabuf
