// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "cuda/cuda_pointer.hpp"

namespace rdmabuf::detail::cuda {

/// Why no memory of @p device can be exported, if none can.
[[nodiscard]] std::optional<ErrorInfo> check_device(const Driver& driver, Device device);
/// @throws Error EOPNOTSUPP for memory that this driver or this device does not export, with what
///         to use instead
void check_exportable(const Driver& driver, const Pointer& pointer);

/// The dma-buf of the pages that hold a range.
struct Handle {
    UniqueFd fd;
    /// Of the range, in the first page.
    std::uint64_t offset;
    MappingKind mapping;
};

/// @param pointer  of the first byte; its context is current
/// @throws Error ERANGE for a range that leaves what is allocated or mapped, or what the driver
///         says
[[nodiscard]] Handle export_pages(const Driver& driver, const Pointer& pointer, std::size_t length,
                                  MappingKind mapping);

} // namespace rdmabuf::detail::cuda
