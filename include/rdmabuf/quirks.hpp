// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/detail/export.hpp>

/// What is known of drivers that share and take dma-bufs, from the sources of Linux (to 7.3) and
/// rdma-core (to 65); none of it was found out on hardware. It explains failures and fills the
/// tables of docs/registration.md. Nothing is ever skipped because of it.
namespace rdmabuf {

/// What a NIC's driver does with a dma-buf that it registered.
enum class ImportMode : std::uint8_t {
    /// It cannot.
    none,
    /// Pins it in place, or where the exporter moves it for that, for as long as it is registered.
    pinned,
    /// The same, and lets the exporter take it back.
    pinned_revocable,
    /// Follows when the exporter moves it, and lets it be taken back. Nothing is pinned.
    follows_moves,
};
/// "none", "pinned", "pinned, revocable", "follows moves".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(ImportMode mode) noexcept;

struct ImporterQuirk {
    /// The RDMA driver: "mlx5".
    std::string_view driver;
    /// What Device::driver() can say of a NIC of it, separated by spaces; empty when nothing of its
    /// own.
    std::string_view sysfs_drivers;
    /// The first of each that has it; empty where none does.
    std::string_view kernel;
    std::string_view rdma_core;
    ImportMode mode;
    /// What else to know.
    std::string_view note;
};

/// What becomes of a buffer that an importer wants pinned.
enum class PinBehaviour : std::uint8_t {
    /// It stays where it is.
    in_place,
    /// It may be moved to system memory, and the registration succeeds all the same: transfers then
    /// cross PCIe twice, or reach a copy.
    system_memory,
    /// It refuses: only importers that pin nothing can take it.
    refused,
};
/// "in place", "moves to system memory", "refused".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(PinBehaviour behaviour) noexcept;

struct ExporterQuirk {
    /// Exporter::name() or, of what this library has no exporter for, the kernel's.
    std::string_view exporter;
    PinBehaviour pin;
    /// When it refuses an importer, and how.
    std::string_view refuses;
    std::string_view note;
};

[[nodiscard]] RDMABUF_EXPORT std::span<const ImporterQuirk> importer_quirks() noexcept;
[[nodiscard]] RDMABUF_EXPORT std::span<const ExporterQuirk> exporter_quirks() noexcept;

/// By the name of the RDMA driver, or by what Device::driver() says; nullptr for others.
[[nodiscard]] RDMABUF_EXPORT const ImporterQuirk* find_importer_quirk(
    std::string_view driver) noexcept;
[[nodiscard]] RDMABUF_EXPORT const ExporterQuirk* find_exporter_quirk(
    std::string_view exporter) noexcept;

} // namespace rdmabuf
