// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

namespace rdmabuf::testing {

/// The ibv_alloc_buf() and ibv_export_buf_dmabuf_fd() that the library finds in this program, in
/// place of those of libibverbs. A buffer is a memfd that is mapped.
struct FakeVerbsBuf {
    /// Whether dlvsym(3) finds ibv_export_buf_dmabuf_fd.
    bool exists = true;
    /// Whether ibv_alloc_buf() fails without setting errno.
    bool alloc_fails = false;
    /// errno of a failure; 0 if the call succeeds.
    int alloc_error = 0;
    int export_error = 0;
    /// Size of the exported file in bytes; 0 for that of the buffer.
    std::size_t exported_size = 0;
    /// Number of buffers that are not freed.
    int live = 0;
};

extern FakeVerbsBuf fake_verbs_buf;

} // namespace rdmabuf::testing
