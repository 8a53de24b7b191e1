// SPDX-License-Identifier: BSD-3-Clause
// Notifications, the order of RDMA writes and notifications, lists of transfers, atomic operations
// and remote fences.
#include <array>
#include <cstring>
#include <numeric>
#include <random>
#include <tuple>

#include "features_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using transport::max_notification;
using transport::TransferEntry;

class Notifications : public FeaturesTest {
  protected:
    /// Makes progress until the right end has a notification. Returns its bytes.
    [[nodiscard]] std::vector<std::byte> next() {
        std::vector<std::byte> bytes(max_notification);
        static_cast<void>(progress_until([&] {
            const auto size = right().notification(bytes);
            if (size) {
                bytes.resize(*size);
            } else {
                EXPECT_EQ(size.code(), code(EAGAIN));
            }
            return size.ok();
        }));
        return bytes;
    }
    [[nodiscard]] Request notify(std::span<const std::byte> bytes, std::size_t length = 0) {
        Request request;
        EXPECT_EQ(
            left().iput_notify(from_->memory(), from_->data(), length, remote(), 0, bytes, request),
            code(0));
        return request;
    }
};

TEST_F(Notifications, have_0_to_512_bytes) {
    connect_with_memory();
    const std::vector<std::byte> bytes = pattern(max_notification, 9);
    for (const std::size_t size : {0U, 1U, 7U, 8U, 9U, 111U, 112U, 113U, 200U, 511U, 512U}) {
        for (const std::size_t length : {std::size_t{0}, std::size_t{10}, std::size_t{100000}}) {
            SCOPED_TRACE(size);
            Request request = notify(std::span(bytes).first(size), length);
            EXPECT_TRUE(next() ==
                        std::vector(bytes.begin(), bytes.begin() + static_cast<long>(size)));
            EXPECT_TRUE(received(0, 0, length));
            EXPECT_EQ(complete(left(), request).bytes, length);
        }
    }
}

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
    Request request = notify(bytes);
    std::array<std::byte, 19> small{};
    Result<std::size_t> size = right().notification(small);
    ASSERT_TRUE(progress_until([&] {
        size = right().notification(small);
        return size.code() != code(EAGAIN);
    }));
    EXPECT_EQ(size.code(), code(EMSGSIZE));
    EXPECT_EQ(right().notification(), std::nullopt);
    EXPECT_TRUE(next() == bytes);
    EXPECT_EQ(complete(left(), request).error, code(0));
}

TEST_F(Notifications, arrive_in_order) {
    connect_with_memory();
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 200; ++i) {
        requests.push_back(notify(std::as_bytes(std::span(&i, 1))));
    }
    for (std::uint32_t i = 0; i < 200; ++i) {
        const std::vector<std::byte> bytes = next();
        ASSERT_EQ(bytes.size(), sizeof i);
        std::uint32_t value = 0;
        std::memcpy(&value, bytes.data(), sizeof value);
        ASSERT_EQ(value, i);
    }
    for (Request& request : requests) {
        EXPECT_EQ(complete(left(), request).error, code(0));
    }
}

TEST_F(Notifications, of_a_closed_channel_are_an_error) {
    connect_with_memory();
    EXPECT_EQ(right().close(), code(0));
    std::array<std::byte, 8> bytes{};
    EXPECT_EQ(right().notification(bytes).code(), code(EBADF));
}

TEST_F(Notifications, that_are_not_read_block_no_message) {
    for (const std::uint32_t count : {64U, 1000U}) {
        SCOPED_TRACE(count);
        disconnect_all();
        options_.depth = 2000;
        connect_with_memory();
        std::vector<Request> requests;
        for (std::uint32_t i = 0; i < count; ++i) {
            requests.push_back(notify(std::as_bytes(std::span(&i, 1))));
        }
        for (const std::size_t length :
             {std::size_t{0}, std::size_t{10}, std::size_t{5000}, std::size_t{200000}}) {
            pass(*from_, *to_, length);
        }
        // RDMA writes without a notification are not blocked, either.
        Request put;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), 100000, remote(), 300000, put),
                  code(0));
        EXPECT_EQ(complete(left(), put).error, code(0));
        Request fence; // makes the data visible to the peer
        ASSERT_EQ(left().ifence(fence), code(0));
        EXPECT_EQ(complete(left(), fence).error, code(0));
        EXPECT_TRUE(received(300000, 0, 100000));
        for (std::uint32_t i = 0; i < count; ++i) {
            std::uint32_t value = 0;
            const std::vector<std::byte> bytes = next();
            ASSERT_EQ(bytes.size(), sizeof value);
            std::memcpy(&value, bytes.data(), sizeof value);
            ASSERT_EQ(value, i);
        }
        for (Request& request : requests) {
            ASSERT_EQ(complete(left(), request).error, code(0));
        }
    }
}

/// The number of devices, the number of queue pairs on each of them, and the value of
/// softverbs_set_disorder().
using Rails = std::tuple<std::size_t, std::uint32_t, const char*>;

[[nodiscard]] std::string name_of(const Rails& rails) {
    const auto& [devices, queue_pairs, disorder] = rails;
    return std::to_string(devices) + "_times_" + std::to_string(queue_pairs) +
           (*disorder != 0 ? "_unordered" : "_ordered");
}

class WriteOrder : public Notifications, public ::testing::WithParamInterface<Rails> {
  protected:
    void SetUp() override {
        use_devices(std::get<0>(GetParam()));
        options_.queue_pairs_per_device = std::get<1>(GetParam());
        ASSERT_EQ(softverbs_set_disorder(std::get<2>(GetParam())), 0);
    }
    void TearDown() override {
        disconnect_all();
        EXPECT_EQ(softverbs_set_disorder(""), 0);
    }
};

INSTANTIATE_TEST_SUITE_P(devices, WriteOrder,
                         ::testing::Values(Rails(1, 1, ""), Rails(2, 1, ""), Rails(4, 1, ""),
                                           Rails(1, 2, ""), Rails(1, 1, "all:1"),
                                           Rails(2, 1, "all:2"), Rails(4, 1, "all:3"),
                                           Rails(1, 4, "all:4"), Rails(4, 4, "all:5")),
                         [](const auto& value) { return name_of(value.param); });

TEST_P(WriteOrder, of_puts_before_a_notification_is_kept) {
    connect_with_memory();
    const RemoteMemory target = remote();
    for (unsigned round = 1; round <= 20; ++round) {
        SCOPED_TRACE(round);
        const std::vector<std::byte> bytes = pattern(memory_size, round);
        from_->fill(bytes);
        std::array<Request, 4> requests;
        const auto put = [&](std::size_t offset, std::size_t length, Request& request) {
            ASSERT_EQ(
                left().iput(from_->memory(), from_->data(offset), length, target, offset, request),
                code(0));
        };
        // Striped over all devices, on the first device, striped again; then the notification with
        // the rest of the data.
        put(0, 600000, requests[0]);
        put(600000, 8, requests[1]);
        put(600008, 299992, requests[2]);
        ASSERT_EQ(left().iput_notify(from_->memory(), from_->data(900000), memory_size - 900000,
                                     target, 900000, round, requests[3]),
                  code(0));
        EXPECT_EQ(next_notification(right()), round);
        ASSERT_TRUE(to_->bytes(0, memory_size) == bytes);
        for (Request& request : requests) {
            EXPECT_EQ(complete(left(), request).error, code(0));
        }
    }
}

TEST_P(WriteOrder, of_the_entries_of_a_list_before_its_notification_is_kept) {
    connect_with_memory();
    const RemoteMemory target = remote();
    constexpr std::size_t block = 4096;
    for (unsigned round = 1; round <= 20; ++round) {
        SCOPED_TRACE(round);
        from_->fill(pattern(memory_size, round));
        std::vector<TransferEntry> entries;
        for (std::size_t i = 0; i < memory_size / block; ++i) {
            entries.push_back({.memory = &from_->memory(),
                               .address = from_->data(i * block),
                               .length = block,
                               .remote = &target,
                               .offset = memory_size - (i + 1) * block});
        }
        const std::vector<std::byte> notification = pattern(round, round);
        Request request;
        ASSERT_EQ(left().iput_list(entries, request, notification), code(0));
        ASSERT_TRUE(next() == notification);
        for (std::size_t i = 0; i < entries.size(); ++i) {
            ASSERT_TRUE(received(entries[i].offset, i * block, block)) << i;
        }
        const Completion completion = complete(left(), request);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.bytes, memory_size);
    }
}

TEST_P(WriteOrder, of_puts_before_a_fence_is_kept) {
    connect_with_memory();
    const RemoteMemory target = remote();
    for (unsigned round = 1; round <= 20; ++round) {
        SCOPED_TRACE(round);
        const std::vector<std::byte> bytes = pattern(memory_size, round);
        from_->fill(bytes);
        Request put;
        Request fence;
        ASSERT_EQ(left().iput(from_->memory(), from_->data(), memory_size, target, 0, put),
                  code(0));
        ASSERT_EQ(left().ifence(fence), code(0));
        // Only the left end makes progress.
        const Completion completion = wait(left(), fence);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.bytes, 0);
        EXPECT_TRUE(to_->bytes(0, memory_size) == bytes);
        EXPECT_EQ(wait(left(), put).error, code(0));
    }
}

class TransferLists : public Notifications, public ::testing::WithParamInterface<std::size_t> {
  protected:
    void SetUp() override { use_devices(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(devices, TransferLists, ::testing::Values(1, 2),
                         [](const auto& value) { return std::to_string(value.param); });

TEST_P(TransferLists, write_4096_blocks_with_one_notification_and_read_them_back) {
    constexpr std::size_t count = 4096;
    constexpr std::size_t block = 16384;
    connect_with_memory(count * block);
    const RemoteMemory target = remote();
    std::vector<std::size_t> places(count);
    std::iota(places.begin(), places.end(), 0);
    std::mt19937 random(1); // NOLINT(*-msc51-cpp): the same sequence in every run
    std::shuffle(places.begin(), places.end(), random);
    std::vector<TransferEntry> entries;
    for (std::size_t i = 0; i < count; ++i) {
        entries.push_back({.memory = &from_->memory(),
                           .address = from_->data(i * block),
                           .length = block,
                           .remote = &target,
                           .offset = places[i] * block});
    }
    const std::vector<std::byte> notification = pattern(300, 4);
    Request request;
    ASSERT_EQ(left().iput_list(entries, request, notification), code(0));
    EXPECT_EQ(left().in_flight(), 1);
    EXPECT_TRUE(next() == notification);
    for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(received(places[i] * block, i * block, block)) << i;
    }
    Completion completion = complete(left(), request);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.bytes, count * block);
    std::array<std::byte, 8> none{};
    EXPECT_EQ(right().notification(none).code(), code(EAGAIN));

    const std::vector<std::byte> sent = from_->bytes(0, count * block);
    from_->fill(std::vector<std::byte>(count * block));
    ASSERT_EQ(left().iget_list(entries, request), code(0));
    completion = complete(left(), request);
    EXPECT_EQ(completion.error, code(0));
    EXPECT_EQ(completion.bytes, count * block);
    EXPECT_TRUE(from_->bytes(0, count * block) == sent);
}

TEST_P(TransferLists, may_be_empty_and_may_have_empty_entries) {
    connect_with_memory();
    const RemoteMemory target = remote();
    Request request;
    ASSERT_EQ(left().iput_list({}, request), code(0));
    EXPECT_EQ(complete(left(), request).bytes, 0);
    ASSERT_EQ(left().iput_list({}, request, std::span<const std::byte>()), code(0));
    EXPECT_TRUE(next().empty());
    EXPECT_EQ(complete(left(), request).error, code(0));
    const std::array<TransferEntry, 3> entries = {
        {{.memory = &from_->memory(), .address = from_->data(), .remote = &target},
         {.memory = &from_->memory(),
          .address = from_->data(),
          .length = 10,
          .remote = &target,
          .offset = 5},
         {.memory = &from_->memory(), .address = from_->data(), .remote = &target}}};
    ASSERT_EQ(left().iput_list(entries, request), code(0));
    EXPECT_EQ(complete(left(), request).bytes, 10);
    EXPECT_TRUE(received(5, 0, 10));
}

TEST_P(TransferLists, are_refused_as_a_whole_if_one_entry_is_invalid) {
    connect_with_memory();
    const RemoteMemory target = remote();
    const TransferEntry good = {
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
    bad = good;
    bad.length = memory_size + 1;
    EXPECT_EQ(refused(bad), code(ERANGE));
    bad = good;
    bad.offset = memory_size - 9;
    EXPECT_EQ(refused(bad), code(ERANGE));
    bad = good;
    bad.memory = &to_->memory();
    bad.address = to_->data();
    EXPECT_EQ(refused(bad), code(EINVAL));
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

TEST_F(Atomics, add_to_the_memory_of_the_peer) {
    target(2) = 40;
    Request request;
    for (std::uint64_t i = 0; i < 100; ++i) {
        ASSERT_EQ(left().ifetch_add(from_->memory(), local(), remote(), 16, 3, request), code(0));
        const Completion completion = complete(left(), request);
        EXPECT_EQ(completion.error, code(0));
        EXPECT_EQ(completion.bytes, 8);
        EXPECT_EQ(*local(), 40 + 3 * i);
    }
    EXPECT_EQ(target(2), 340);
}

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

TEST_F(Atomics, of_two_peers_are_all_counted) {
    connect_third();
    const TestMemory theirs = memory_of(*third_end_, 4096);
    target() = 0;
    std::array<Request, 64> requests;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        Channel& channel = i % 2 == 0 ? left() : third();
        const TestMemory& memory = i % 2 == 0 ? *from_ : theirs;
        ASSERT_EQ(
            channel.ifetch_add(memory.memory(), reinterpret_cast<std::uint64_t*>(memory.data()) + i,
                               remote(), 0, 1, requests[i]),
            code(0));
    }
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(complete(i % 2 == 0 ? left() : third(), requests[i]).error, code(0));
        const TestMemory& memory = i % 2 == 0 ? *from_ : theirs;
        const std::uint64_t before = reinterpret_cast<std::uint64_t*>(memory.data())[i];
        ASSERT_LT(before, requests.size());
        seen |= std::uint64_t{1} << before;
    }
    EXPECT_EQ(target(), requests.size());
    EXPECT_EQ(seen, ~std::uint64_t{0});
}

TEST_F(Atomics, need_an_aligned_address_and_the_access) {
    Request request;
    const auto add = [&](const Memory& memory, std::uint64_t* result, const RemoteMemory& to,
                         std::uint64_t offset) {
        return left().ifetch_add(memory, result, to, offset, 1, request);
    };
    EXPECT_EQ(add(from_->memory(), local(), remote(), 4), code(EINVAL));
    EXPECT_EQ(add(from_->memory(), local(), remote(), 4096), code(ERANGE));
    EXPECT_EQ(add(from_->memory(), local(511) + 1, remote(), 0), code(ERANGE));
    EXPECT_EQ(add(Memory(), local(), remote(), 0), code(EINVAL));
    EXPECT_EQ(add(from_->memory(), local(), RemoteMemory(), 0), code(EINVAL));
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
