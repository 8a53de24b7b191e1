// SPDX-License-Identifier: BSD-3-Clause
// Registers memory with the devices of an Endpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/transport/memory.hpp>

namespace rdmabuf::transport::detail {

class EndpointState;

/// Implements Endpoint::register_memory().
[[nodiscard]] RDMABUF_EXPORT Result<Memory> register_address(EndpointState& endpoint,
                                                             std::uintptr_t address,
                                                             std::size_t length, Access access,
                                                             Visibility visibility) noexcept;
/// Implements Endpoint::register_uncached().
[[nodiscard]] RDMABUF_EXPORT Result<Memory> register_uncached(EndpointState& endpoint,
                                                              std::uintptr_t address,
                                                              std::size_t length, Access access,
                                                              Visibility visibility) noexcept;
/// Implements Endpoint::register_dmabuf().
[[nodiscard]] RDMABUF_EXPORT Result<Memory> register_dmabuf(EndpointState& endpoint,
                                                            const DmaBufRange& range, Access access,
                                                            Visibility visibility) noexcept;
/// Describes memory that the program has registered itself; see Endpoint::use_regions().
[[nodiscard]] RDMABUF_EXPORT Result<Memory> use_regions(
    EndpointState& endpoint, std::uintptr_t address, std::size_t length, Access access, bool host,
    std::span<const std::span<const LocalChunk>> regions, Visibility visibility) noexcept;

} // namespace rdmabuf::transport::detail
