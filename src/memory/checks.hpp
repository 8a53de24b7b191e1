// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include <rdmabuf/access.hpp>
#include <rdmabuf/exported_range.hpp>

namespace rdmabuf::detail {

/// Refuses, with EINVAL and in words, flags outside @p allowed, and what ib_check_mr_access
/// (include/rdma/ib_verbs.h) refuses: remote write or atomics without local write.
/// @param what  the kind of registration, "a dma-buf"
void check_access(Access access, Access allowed, const char* function, const char* what);

/// Refuses, with ERANGE and the numbers, a range that does not lie inside @p size bytes.
/// @param what  whose size it is, "the region"
void check_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t size,
                  const char* function, const char* what);

/// Checks what the kernel refuses with a bare EINVAL when host memory is registered: a length of 0,
/// access flags that verbs does not have, and an iova with another page offset than the address.
/// @throws Error EINVAL with the reason
void check_host_region(const void* address, std::size_t length, std::uint64_t iova, Access access,
                       const char* function);

/// Checks what the kernel refuses with a bare EINVAL when a dma-buf is registered: access flags, a
/// length of 0, a range that overflows, and an iova with another page offset than the offset.
/// @throws Error EINVAL with the reason
void check_dmabuf(const DmaBufRange& range, std::uint64_t iova, Access access,
                  const char* function);

} // namespace rdmabuf::detail
