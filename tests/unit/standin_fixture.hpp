// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "../providers/support.hpp"
#include "fails_with.hpp"
#include "standin/standin.hpp"

namespace rdmabuf::testing {

/// For tests on the stand-in, which begin with one RoCE device. Whatever a test does, afterwards
/// nothing is alive or open that was not before, nothing was destroyed while in use or twice, every
/// event is acknowledged, and no destructor failed.
class StandinTest : public ::testing::Test {
  public:
    StandinTest();
    ~StandinTest() override;
    StandinTest(const StandinTest&) = delete;
    StandinTest& operator=(const StandinTest&) = delete;

  protected:
    /// What destructors reported, for a test that expects it.
    [[nodiscard]] std::vector<TeardownFailures::Failure> take_teardown_failures();

  private:
    std::set<int> descriptors_;
    std::optional<TeardownFailures> teardown_failures_;
};

/// What most tests need before they begin.
struct Basics {
    Context context = Context::open_first();
    ProtectionDomain pd{context};
    CompletionQueue cq{context};
};

/// A queue pair that is its own peer, which the stand-in does not mind.
[[nodiscard]] inline QueuePair connect_to_itself(PreparedQueuePair prepared) {
    const QueuePairAddress address = prepared.address();
    return std::move(prepared).connect(address);
}

/// What the stand-in takes for a dma-buf: a memfd of @p size bytes.
[[nodiscard]] UniqueFd make_dmabuf(std::size_t size);

} // namespace rdmabuf::testing
