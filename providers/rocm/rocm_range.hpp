// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <rdmabuf/exporter.hpp>

#include "rocm/rocm_pointer.hpp"

namespace rdmabuf::detail::rocm {

inline constexpr const char* name_of_exporter = "rocm";

/// Checks that HSA can export the memory.
/// @throws Error EOPNOTSUPP if HSA cannot export the memory; the error text names an alternative
void check_exportable(const Driver& driver, const Pointer& pointer);

/// Exports the @p length bytes that begin at the address of @p pointer.
/// @throws Error ERANGE if the range exceeds the allocation, or with the errno for the driver's
///         status
[[nodiscard]] ExportedRange export_from(const Driver& driver, const Pointer& pointer,
                                        std::size_t length, MappingKind mapping);

} // namespace rdmabuf::detail::rocm
