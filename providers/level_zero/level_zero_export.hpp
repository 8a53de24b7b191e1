// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/unique_fd.hpp>

#include "level_zero/level_zero_pointer.hpp"

namespace rdmabuf::detail::level_zero {

/// Why no memory of @p device can be exported, if none can.
[[nodiscard]] std::optional<ErrorInfo> check_device(const Driver& driver, Device device);
/// @throws Error EOPNOTSUPP for memory that is not exported, with what to use instead
void check_exportable(const Driver& driver, const Pointer& pointer);

/// The dma-buf of an allocation, and where in it a range begins.
struct Handle {
    UniqueFd fd;
    std::uint64_t offset;
};

/// @param pointer  the first byte
/// @throws Error ERANGE for a range that leaves the allocation, EOPNOTSUPP for memory that was not
///         allocated for export and that the driver does not export all the same or in a dma-buf of
///         more than the allocation, or what the driver says
[[nodiscard]] Handle export_allocation(const Driver& driver, const Pointer& pointer,
                                       std::size_t length);

} // namespace rdmabuf::detail::level_zero
