// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "cuda/cuda_pointer.hpp"

namespace rdmabuf::detail::cuda {

/// Returns an error if @p device cannot export device memory, otherwise std::nullopt.
[[nodiscard]] std::optional<ErrorInfo> check_device(const Driver& driver, Device device);
/// Checks that this driver and this device can export the memory.
/// @throws Error EOPNOTSUPP if the memory cannot be exported; the error text names an alternative
void check_exportable(const Driver& driver, const Pointer& pointer);

/// Holds the dma-buf of the pages that contain an exported range.
struct Handle {
    UniqueFd fd;
    /// Offset of the range in its first page, in bytes.
    std::uint64_t offset;
    MappingKind mapping;
};

/// Exports the pages that contain the @p length bytes at @p pointer. The context of the memory must
/// be current.
/// @param pointer  the first byte
/// @throws Error ERANGE if the range exceeds the allocation or its mappings, or if the driver's
///         dma-buf is too short; EOPNOTSUPP if the memory was not allocated for RDMA; EIO if the
///         driver returned no descriptor; otherwise the errno for the driver's result
[[nodiscard]] Handle export_pages(const Driver& driver, const Pointer& pointer, std::size_t length,
                                  MappingKind mapping);

} // namespace rdmabuf::detail::cuda
