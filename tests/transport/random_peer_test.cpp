// SPDX-License-Identifier: BSD-3-Clause
// Plays sequences of random messages and requests without libFuzzer; see tests/fuzz.
#include <random>
#include <vector>

#include "malicious_peer.hpp"

namespace rdmabuf::testing {
namespace {

using RandomPeer = MaliciousPeerTest;

TEST_F(RandomPeer, harms_neither_other_memory_nor_other_channels) {
    std::mt19937 random(1); // NOLINT(*-msc51-cpp): the same numbers in each run
    for (int sequence = 0; sequence < 200; ++sequence) {
        SCOPED_TRACE(sequence);
        std::vector<std::uint8_t> bytes(600);
        for (std::uint8_t& byte : bytes) {
            byte = static_cast<std::uint8_t>(random());
        }
        ASSERT_NO_FATAL_FAILURE(play({bytes.data(), bytes.size()}));
        ASSERT_FALSE(HasFailure());
    }
}

} // namespace
} // namespace rdmabuf::testing
