// SPDX-License-Identifier: BSD-3-Clause
// The bytes of a ChannelAddress, which may come from an untrusted program.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepared_channels_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::HasSubstr;

class ChannelAddresses : public PreparedChannels {
  protected:
    void SetUp() override {
        PreparedChannels::SetUp();
        open();
        prepared_.emplace(prepare(left_end()));
        bytes_.assign(prepared_->address().bytes().begin(), prepared_->address().bytes().end());
    }
    /// Returns an address that contains @p hello, with the right checksum.
    [[nodiscard]] ChannelAddress address_of(const Hello& hello) const {
        return {hello, QueuePairAddress::decode(prepared_->address().setup_queue_pair()).value()};
    }

    std::optional<PreparedChannel> prepared_;
    std::vector<std::byte> bytes_;
};

TEST_F(ChannelAddresses, may_have_padding) {
    bytes_.resize(bytes_.size() + 100);
    EXPECT_TRUE(ChannelAddress::decode(bytes_).ok());
}

TEST_F(ChannelAddresses, that_are_truncated_fail_with_emsgsize) {
    for (std::size_t size = 8; size < bytes_.size(); ++size) {
        const auto result = ChannelAddress::decode(std::span(bytes_).first(size));
        ASSERT_EQ(result.code(), code(EMSGSIZE));
        ASSERT_THAT(result.message(), HasSubstr(std::to_string(size)));
    }
    EXPECT_EQ(ChannelAddress::decode({}).code(), code(EMSGSIZE));
}

TEST_F(ChannelAddresses, with_any_changed_bit_are_rejected) {
    for (std::size_t i = 0; i < bytes_.size() * 8; ++i) {
        std::vector<std::byte> changed = bytes_;
        changed[i / 8] ^= std::byte{1} << i % 8;
        ASSERT_THAT(ChannelAddress::decode(changed).code().value(),
                    ::testing::AnyOf(EPROTO, EPROTONOSUPPORT))
            << i;
    }
}

TEST_F(ChannelAddresses, of_another_version_fail_with_eprotonosupport) {
    Hello hello = prepared_->address().hello();
    ++hello.version;
    const ChannelAddress address = address_of(hello);
    EXPECT_EQ(ChannelAddress::decode(address.bytes()).code(), code(EPROTONOSUPPORT));
    // Another version may be shorter.
    EXPECT_EQ(ChannelAddress::decode(address.bytes().first<16>()).code(), code(EPROTONOSUPPORT));
}

/// The checks are those of the Hello on a socket; handshake_test.cpp has more of its cases.
TEST_F(ChannelAddresses, with_impossible_values_fail_with_eproto_and_leak_nothing) {
    const Hello valid = prepare(right_end()).address().hello();
    Hello hello = valid;
    hello.rails = 9;
    EXPECT_EQ(ChannelAddress::decode(address_of(hello).bytes()).code(), code(EPROTO));
    hello = valid;
    hello.addresses[0] = {};
    const auto decoded = ChannelAddress::decode(address_of(hello).bytes());
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(std::move(*prepared_).connect(*decoded).code(), code(EPROTO));
}

TEST_F(ChannelAddresses, with_a_wrong_setup_queue_pair_fail_with_an_error_and_leak_nothing) {
    const PreparedChannel peer = prepare(right_end());
    std::vector<std::byte> bytes(peer.address().bytes().begin(), peer.address().bytes().end());
    std::fill_n(bytes.begin() + sizeof(Hello), QueuePairAddress::wire_size, std::byte{});
    const std::uint64_t sum =
        transport::detail::checksum(std::span(bytes).first(bytes.size() - sizeof(sum)));
    std::memcpy(bytes.data() + bytes.size() - sizeof sum, &sum, sizeof sum);
    const auto decoded = ChannelAddress::decode(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.message();
    EXPECT_EQ(std::move(*prepared_).connect(*decoded).code(), code(EPROTO));
}

} // namespace
} // namespace rdmabuf::testing
