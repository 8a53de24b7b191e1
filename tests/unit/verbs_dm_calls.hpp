// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace rdmabuf::testing {

/// What the calls of dlvsym(3), mmap(2) and fcntl(2) do that the library makes in this program.
struct Calls {
    /// Whether dlvsym(3) returns `found` instead of what it finds.
    bool replaced = false;
    void* found = nullptr;
    /// errno of a failure; 0 if the call is made.
    int mmap_error = 0;
    int fcntl_error = 0;
};

extern Calls calls;

} // namespace rdmabuf::testing
