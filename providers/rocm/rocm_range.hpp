// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/exported_range.hpp>

#include "rocm/rocm_pointer.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {

inline constexpr const char* name_of_exporter = "rocm";

/// Checks that HSA can export the memory.
/// @throws Error EOPNOTSUPP if HSA cannot export the memory; the error text names an alternative
void check_exportable(const Driver& driver, const Pointer& pointer);

/// Exports the @p length bytes that begin at the address of @p pointer. The ExportedRange closes
/// its descriptor through HSA, and keeps HSA initialised while the descriptor is open.
/// @throws Error ERANGE if the range exceeds the allocation, or with the errno for the driver's
///         status
[[nodiscard]] ExportedRange export_from(const std::shared_ptr<const Runtime>& runtime,
                                        const Pointer& pointer, std::size_t length,
                                        MappingKind mapping);

} // namespace rdmabuf::detail::rocm
