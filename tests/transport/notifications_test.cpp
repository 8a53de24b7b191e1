// SPDX-License-Identifier: BSD-3-Clause
// The limits of notifications, lists of transfers and atomic operations.
#include <array>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::max_notification;
using transport::TransferEntry;

using Notifications = FeaturesTest;

TEST_F(Notifications, of_more_than_512_bytes_are_refused) {
    connect_with_memory();
    const std::vector<std::byte> bytes(max_notification + 1);
    Request request;
    EXPECT_EQ(left().iput_notify(from_->memory(), from_->data(), 10, remote(), 0, bytes, request),
              code(EMSGSIZE));
    const std::array<TransferEntry, 0> none{};
    EXPECT_EQ(left().iput_list(none, request, std::span<const std::byte>(bytes)), code(EMSGSIZE));
    EXPECT_EQ(left().in_flight(), 0);
    EXPECT_EQ(left().state(), code(0));
}

TEST_F(Notifications, are_kept_if_the_buffer_is_too_small) {
    connect_with_memory();
    const std::vector<std::byte> bytes = pattern(20);
    Request request;
    ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(), 0, remote(), 0, bytes, request),
              code(0));
    std::array<std::byte, 19> small{};
    Result<std::size_t> size = right().notification(small);
    ASSERT_TRUE(progress_until([&] {
        size = right().notification(small);
        return size.code() != code(EAGAIN);
    }));
    EXPECT_EQ(size.code(), code(EMSGSIZE));
    EXPECT_EQ(size.reason(), "the notification has 20 bytes, and the buffer has 19");
    EXPECT_EQ(right().notification(), std::nullopt);
    EXPECT_TRUE(next() == bytes);
    EXPECT_EQ(complete(left(), request).error, code(0));
}

class TransferLists : public FeaturesTest, public ::testing::WithParamInterface<std::size_t> {
  protected:
    void SetUp() override { use_devices(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(devices, TransferLists, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(TransferLists, may_be_empty) {
    connect_with_memory();
    Request request;
    ASSERT_EQ(left().iput_list({}, request), code(0));
    EXPECT_EQ(complete(left(), request).bytes, 0);
    ASSERT_EQ(left().iput_list({}, request, std::span<const std::byte>()), code(0));
    EXPECT_TRUE(next().empty());
    EXPECT_EQ(complete(left(), request).error, code(0));
}

TEST_P(TransferLists, are_refused_as_a_whole_if_one_entry_is_invalid) {
    connect_with_memory();
    const RemoteMemory target = remote();
    const TestMemory short_memory = left_memory(100);
    const TestMemory short_target_memory = right_memory(100);
    const auto short_target = short_target_memory.memory().remote();
    ASSERT_TRUE(short_target.ok()) << short_target.message();
    TransferEntry good = {
        .memory = &from_->memory(), .address = from_->data(), .length = 10, .remote = &target};
    const auto refused = [&](const TransferEntry& bad) {
        const std::array<TransferEntry, 2> entries = {good, bad};
        Request request;
        return left().iput_list(entries, request);
    };
    TransferEntry bad = good;
    bad.memory = nullptr;
    EXPECT_EQ(refused(bad), code(EINVAL));
    bad = good;
    bad.remote = nullptr;
    EXPECT_EQ(refused(bad), code(EINVAL));
    // Requests prove the other checks of a transfer. Only the ranges are checked again if both
    // entries have the same memories.
    bad = good;
    bad.offset = memory_size - 9;
    EXPECT_EQ(refused(bad), code(ERANGE));
    bad = good;
    bad.address = from_->data(memory_size - 9);
    EXPECT_EQ(refused(bad), code(ERANGE));
    bad.address = from_->data() - 1;
    EXPECT_EQ(refused(bad), code(ERANGE));
    good.remote = &*short_target;
    bad = good;
    bad.length = 101;
    EXPECT_EQ(refused(bad), code(ERANGE));
    good = {.memory = &short_memory.memory(),
            .address = short_memory.data(),
            .length = 10,
            .remote = &target};
    bad = good;
    bad.length = 101;
    EXPECT_EQ(refused(bad), code(ERANGE));
    EXPECT_EQ(left().in_flight(), 0);
    settle();
    EXPECT_TRUE(to_->bytes(0, 10) == std::vector<std::byte>(10));
}

class Atomics : public FeaturesTest {
  protected:
    void SetUp() override {
        connect_with_memory(4096, Endpoint::default_access | Access::remote_atomic);
    }
    [[nodiscard]] std::uint64_t* local(std::size_t i = 0) const {
        return reinterpret_cast<std::uint64_t*>(from_->data()) + i;
    }
    [[nodiscard]] std::uint64_t& target(std::size_t i = 0) const {
        return reinterpret_cast<std::uint64_t*>(to_->data())[i];
    }
};

TEST_F(Atomics, replace_only_the_expected_value) {
    target() = 5;
    Request request;
    ASSERT_EQ(left().icompare_swap(from_->memory(), local(), remote(), 0, 4, 9, request), code(0));
    EXPECT_EQ(complete(left(), request).error, code(0));
    EXPECT_EQ(*local(), 5);
    EXPECT_EQ(target(), 5);
    ASSERT_EQ(left().icompare_swap(from_->memory(), local(), remote(), 0, 5, 9, request), code(0));
    EXPECT_EQ(complete(left(), request).error, code(0));
    EXPECT_EQ(*local(), 5);
    EXPECT_EQ(target(), 9);
}

TEST_F(Atomics, need_an_aligned_address_and_the_access) {
    Request request;
    const auto add = [&](const Memory& memory, std::uint64_t* result, const RemoteMemory& to,
                         std::uint64_t offset) {
        return left().ifetch_add(memory, result, to, offset, 1, request);
    };
    EXPECT_EQ(add(from_->memory(), local(), remote(), 4), code(EINVAL));
    EXPECT_EQ(add(from_->memory(), local(), remote(), 4096), code(ERANGE));
    const TestMemory plain = right_memory(4096);
    const auto no_atomics = plain.memory().remote();
    ASSERT_TRUE(no_atomics.ok());
    EXPECT_EQ(add(from_->memory(), local(), *no_atomics, 0), code(EACCES));
    const TestMemory read_only = left_memory(4096, Kind::dmabuf, Access::local_read);
    EXPECT_EQ(
        add(read_only.memory(), reinterpret_cast<std::uint64_t*>(read_only.data()), remote(), 0),
        code(EACCES));
    EXPECT_EQ(left().in_flight(), 0);
    EXPECT_EQ(left().state(), code(0));
}

} // namespace
} // namespace rdmabuf::testing
