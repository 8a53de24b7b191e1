// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/exporter.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf::detail {

/// Checks the access flags of a registration. Remote write and atomic access require local write,
/// as in ib_check_mr_access() of Linux (include/rdma/ib_verbs.h).
/// @param what  the kind of memory for the error text, for example "a dma-buf"
/// @throws Error EINVAL for flags outside @p allowed, and for remote write or atomic access without
/// local write
void check_access(Access access, Access allowed, const char* function, const char* what);

/// Checks that @p length bytes at @p offset lie inside an object of @p size bytes.
/// @param what  the object for the error text, for example "the region"
/// @throws Error ERANGE if the range is not inside the object; the error text has the three numbers
void check_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t size,
                  const char* function, const char* what);

/// Rejects arguments of host memory registrations for which the kernel returns EINVAL without a
/// reason: a length of 0, access flags that check_access() rejects, and an iova whose page offset
/// differs from that of the address.
/// @throws Error EINVAL with the reason
void check_host_region(const void* address, std::size_t length, std::uint64_t iova, Access access,
                       const char* function);

/// Rejects arguments of dma-buf registrations for which the kernel returns EINVAL without a reason:
/// access flags that check_access() rejects or that dma-bufs do not support, a length of 0, a range
/// that overflows, and an iova whose page offset differs from that of the offset in the dma-buf.
/// @throws Error EINVAL with the reason
void check_dmabuf(const DmaBufRange& range, std::uint64_t iova, Access access,
                  const char* function);

} // namespace rdmabuf::detail
