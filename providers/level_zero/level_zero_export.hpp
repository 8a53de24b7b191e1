// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/unique_fd.hpp>

#include "level_zero/level_zero_pointer.hpp"

namespace rdmabuf::detail::level_zero {

/// Returns an error if memory of @p device cannot be exported as a dma-buf, otherwise std::nullopt.
[[nodiscard]] std::optional<ErrorInfo> check_device(const Driver& driver, Device device);
/// Checks that the type of the memory permits an export, and that the device of the memory can
/// export memory. An export can fail for other reasons.
/// @throws Error EOPNOTSUPP if not; the error text names an alternative
void check_exportable(const Driver& driver, const Pointer& pointer);

/// Holds the dma-buf of an allocation, and the offset of the exported range in the dma-buf, in
/// bytes.
struct Handle {
    UniqueFd fd;
    std::uint64_t offset;
};

/// Exports the allocation that contains the @p length bytes at @p pointer.
/// @param pointer  the first byte
/// @throws Error
///   - ERANGE: the range exceeds the allocation, or the dma-buf is shorter than the allocation
///   - EOPNOTSUPP: the driver refuses the export, or has taken the memory from a pool (both can
///     happen if the memory was not allocated for export); or zeVirtualMemMap has mapped only a
///     part of a physical memory object
///   - the errno for the driver's result, or of fcntl(2) or lseek(2)
[[nodiscard]] Handle export_allocation(const Driver& driver, const Pointer& pointer,
                                       std::size_t length);

} // namespace rdmabuf::detail::level_zero
