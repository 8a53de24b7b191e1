// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace rdmabuf::testing {

/// Lets system calls of this thread fail for as long as it lives; those of other threads, the peers
/// of a test, do not. The linker sends the calls here (--wrap): tests/unit/CMakeLists.txt lists
/// them. One at a time in a thread.
class FailingCalls {
  public:
    struct Failure {
        /// Empty for any of them.
        std::string function;
        /// Which of its calls fails, once; from 1. Calls that an earlier Failure took do not count.
        unsigned nth;
        /// getaddrinfo(3) fails with EAI_SYSTEM and this.
        int error;
    };

    explicit FailingCalls(std::vector<Failure> failures);
    ~FailingCalls();
    FailingCalls(const FailingCalls&) = delete;
    FailingCalls& operator=(const FailingCalls&) = delete;

    /// The function whose call was the one of failure @p i; empty when it has not come to that.
    [[nodiscard]] const std::string& failed(std::size_t i) const { return failed_.at(i); }

    /// Where the wrapped calls come by: 0, or the errno that this call of @p function fails with.
    [[nodiscard]] static int enter(const char* function);

  private:
    std::vector<Failure> failures_;
    std::vector<std::string> failed_;
};

} // namespace rdmabuf::testing
