// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exporter.hpp>

/// The following functions call the functions of an Exporter. A program can write its own exporter,
/// which may throw any exception. Error, std::bad_alloc and the cancellation of the thread are
/// passed on to the caller. Every other exception, and an Error with the errno value 0, is
/// converted to Error, so that code that calls exporters has to catch only Error and
/// std::bad_alloc.
namespace rdmabuf::detail {

/// Converts the current exception, which a function of @p exporter threw. Must be called in a catch
/// (...) block. std::bad_alloc, the cancellation of the thread, and an Error whose errno value is
/// not 0 are rethrown. Any other exception becomes an Error with the errno value of a
/// std::system_error, or with EIO. The hint has the name of the exporter and the text of the
/// exception.
/// @param function  the function of the exporter that threw, a string literal
[[noreturn]] void rethrow_from_exporter(const Exporter& exporter, const char* function);

/// Checks and returns @p found, the answer of @p exporter for the @p length bytes at @p address.
/// @throws Error EIO if none of these bytes is in the allocation, or if the allocation overflows
[[nodiscard]] std::optional<Allocation> checked(std::optional<Allocation> found,
                                                const Exporter& exporter, const char* function,
                                                std::uintptr_t address, std::size_t length);

/// Checks and returns @p made, the range that @p exporter exported for @p address.
/// @throws Error EIO if @p made reports an address that is neither 0 nor @p address
[[nodiscard]] ExportedRange checked(ExportedRange made, const Exporter& exporter,
                                    std::uintptr_t address);

[[nodiscard]] inline std::optional<Allocation> find(const Exporter& exporter,
                                                    std::uintptr_t address) {
    try {
        return checked(exporter.find(address), exporter, "Exporter::find", address, 1);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::find");
    }
}

[[nodiscard]] inline std::optional<Allocation> find_range(const Exporter& exporter,
                                                          std::uintptr_t address,
                                                          std::size_t length) {
    try {
        return checked(exporter.find_range(address, length), exporter, "Exporter::find_range",
                       address, 1);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::find_range");
    }
}

[[nodiscard]] inline std::optional<Allocation> find_overlapping(const Exporter& exporter,
                                                                std::uintptr_t address,
                                                                std::size_t length) {
    try {
        return checked(exporter.find_overlapping(address, length), exporter,
                       "Exporter::find_overlapping", address, length);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::find_overlapping");
    }
}

[[nodiscard]] inline ExportedRange export_range(const Exporter& exporter, std::uintptr_t address,
                                                std::size_t length, MappingKind mapping) {
    try {
        return checked(exporter.export_range(address, length, mapping), exporter, address);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::export_range");
    }
}

} // namespace rdmabuf::detail
