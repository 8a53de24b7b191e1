// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/exporter.hpp>

/// The calls of an Exporter by this library. An exporter can be written by a program, and throw
/// anything. Error and std::bad_alloc pass; every other exception becomes an Error, so that code
/// that calls exporters has to catch Error only.
namespace rdmabuf::detail {

/// Call in a catch (...) block. Rethrows an Error, std::bad_alloc and the cancellation of the
/// thread. Throws an Error for every other exception: with its errno for a std::system_error,
/// otherwise with EIO. The hint names the exporter and has the text of a std::exception.
/// @param function  the function of the exporter that threw, a string literal
[[noreturn]] void rethrow_from_exporter(const Exporter& exporter, const char* function);

[[nodiscard]] inline std::optional<Allocation> find(const Exporter& exporter,
                                                    std::uintptr_t address) {
    try {
        return exporter.find(address);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::find");
    }
}

[[nodiscard]] inline std::optional<Allocation> find_range(const Exporter& exporter,
                                                          std::uintptr_t address,
                                                          std::size_t length) {
    try {
        return exporter.find_range(address, length);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::find_range");
    }
}

[[nodiscard]] inline ExportedRange export_range(const Exporter& exporter, std::uintptr_t address,
                                                std::size_t length, MappingKind mapping) {
    try {
        return exporter.export_range(address, length, mapping);
    } catch (...) {
        rethrow_from_exporter(exporter, "Exporter::export_range");
    }
}

} // namespace rdmabuf::detail
