// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/exported_range.hpp>

#include "rocm/rocm_pointer.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {

inline constexpr const char* name_of_exporter = "rocm";

/// @throws Error EOPNOTSUPP for memory that HSA does not export, with what to use instead
void check_exportable(const Driver& driver, const Pointer& pointer);

/// The dma-buf that holds @p length bytes from @p pointer on. It goes back to the driver, which
/// stays initialised until then.
/// @throws Error ERANGE for a range that leaves the allocation, or what the driver says
[[nodiscard]] ExportedRange export_from(const std::shared_ptr<const Runtime>& runtime,
                                        const Pointer& pointer, std::size_t length,
                                        MappingKind mapping);

} // namespace rdmabuf::detail::rocm
