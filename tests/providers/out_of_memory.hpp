// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace rdmabuf::testing {

/// While one lives, operator new of this thread throws std::bad_alloc.
class OutOfMemory {
  public:
    OutOfMemory() noexcept;
    ~OutOfMemory();
    OutOfMemory(const OutOfMemory&) = delete;
    OutOfMemory& operator=(const OutOfMemory&) = delete;
};

} // namespace rdmabuf::testing
