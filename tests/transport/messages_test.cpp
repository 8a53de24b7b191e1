// SPDX-License-Identifier: BSD-3-Clause
// Messages between two ends of one process, on softverbs.
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include <rdmabuf/region.hpp>

#include "recorder/verbs_recorder.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {
namespace {

struct Ends {
    TestMemory::Kind from;
    TestMemory::Kind to;
    std::size_t devices;
    std::uint32_t queue_pairs_per_device = 1;
};

class EveryKind : public TransportTest, public ::testing::WithParamInterface<Ends> {
  protected:
    void SetUp() override {
        use_devices(GetParam().devices);
        options_.queue_pairs_per_device = GetParam().queue_pairs_per_device;
        connect();
    }
};

/// The lengths around each limit: 0, inline data, copied and gathered eager messages, rendezvous,
/// fragments of several devices.
constexpr std::array<std::size_t, 17> sizes = {0,     1,     111,    112,    113,      1023,
                                               1024,  1025,  4096,   8191,   8192,     8193,
                                               65535, 65537, 131072, 300001, 1U << 20U};

TEST_P(EveryKind, passes_messages_of_every_size_unchanged) {
    TestMemory from = left_memory(2U << 20U, GetParam().from);
    const TestMemory to = right_memory(2U << 20U, GetParam().to);
    from.fill(pattern(2U << 20U));
    for (const std::size_t size : sizes) {
        SCOPED_TRACE(size);
        pass(from, to, size, 1, 5, 11);
    }
}

TEST_P(EveryKind, passes_messages_in_memory_that_the_program_has_registered) {
    constexpr std::size_t size = 300001;
    TestMemory from = left_memory(size, GetParam().from);
    from.fill(pattern(size));
    std::vector<std::byte> bytes(size);
    std::vector<MemoryRegion> regions;
    std::vector<LocalChunk> chunks;
    std::vector<std::span<const LocalChunk>> of_devices;
    chunks.reserve(GetParam().devices);
    for (std::size_t i = 0; i < GetParam().devices; ++i) {
        regions.emplace_back(right_end().protection_domain(i), bytes.data(), size,
                             MemoryRegionOptions{.access = Endpoint::default_access});
        chunks.push_back(as_chunk(regions.back()));
        of_devices.emplace_back(&chunks.back(), 1);
    }
    const auto use = [&](std::size_t devices) {
        return right_end().use_regions(bytes.data(), size, Endpoint::default_access, true,
                                       std::span(of_devices).first(devices));
    };
    EXPECT_EQ(use(0).error_info().error(), EINVAL) << "no device has registered it";
    for (const std::size_t other : {size - 1, size + 1}) {
        EXPECT_EQ(right_end()
                      .use_regions(bytes.data(), other, Endpoint::default_access, true, of_devices)
                      .error_info()
                      .error(),
                  EINVAL)
            << other;
    }
    // The same region in parts.
    const auto use_parts = [&](std::size_t part, bool host, bool add_empty, std::size_t gap = 0) {
        std::vector<std::vector<LocalChunk>> parts;
        std::vector<std::span<const LocalChunk>> parts_of_devices;
        for (const LocalChunk& whole : chunks) {
            std::vector<LocalChunk>& of_device = parts.emplace_back();
            for (std::size_t at = 0; at < size; at += part) {
                LocalChunk& each = of_device.emplace_back(whole);
                each.address += at == 0 ? 0 : at + gap;
                each.length = std::min(part, size - at);
            }
            if (add_empty) {
                of_device.push_back({whole.address + size, 0, whole.lkey, whole.rkey});
            }
        }
        parts_of_devices.assign(parts.begin(), parts.end());
        return right_end()
            .use_regions(bytes.data(), size, Endpoint::default_access, host, parts_of_devices)
            .error_info()
            .error();
    };
    EXPECT_EQ(use_parts(1000, true, false), 0);
    EXPECT_EQ(use_parts(1000, true, true), EINVAL) << "a region is empty";
    EXPECT_EQ(use_parts(1000, true, false, 8), EINVAL) << "a gap after the first region";
    // A device copies a message to at most 8 regions: 7, and at least one byte of two others, are
    // longer.
    const std::size_t too_short = (right_end().options().eager_limit - 2) / 7;
    EXPECT_EQ(use_parts(too_short + 1, false, false), 0);
    EXPECT_EQ(use_parts(too_short, false, false), EINVAL);
    const auto to = use(GetParam().devices);
    ASSERT_TRUE(to) << to.message();
    EXPECT_TRUE(to->host());
    Request send;
    Request receive;
    ASSERT_EQ(right().irecv(*to, bytes.data(), size, 7, receive), code(0));
    ASSERT_EQ(left().isend(from.memory(), from.data(), size, 7, send), code(0));
    EXPECT_EQ(finish(right(), receive).bytes, size);
    EXPECT_EQ(finish(left(), send).error, code(0));
    EXPECT_TRUE(bytes == from.bytes(0, size));
}

INSTANTIATE_TEST_SUITE_P(
    memory, EveryKind,
    ::testing::Values(Ends{TestMemory::Kind::host, TestMemory::Kind::host, 1},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::dmabuf, 1},
                      Ends{TestMemory::Kind::host, TestMemory::Kind::dmabuf, 2},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::host, 2},
                      Ends{TestMemory::Kind::host, TestMemory::Kind::dmabuf, 1, 3},
                      Ends{TestMemory::Kind::dmabuf, TestMemory::Kind::host, 4, 4}),
    [](const auto& value) {
        const auto name = [](TestMemory::Kind kind) {
            return kind == TestMemory::Kind::host ? std::string("host") : std::string("dmabuf");
        };
        return name(value.param.from) + "_to_" + name(value.param.to) + "_over_" +
               std::to_string(value.param.devices) + "_times_" +
               std::to_string(value.param.queue_pairs_per_device);
    });

using DmaBufs = TransportTest;

TEST_F(DmaBufs, may_begin_elsewhere_in_their_page_than_their_address) {
    connect();
    const UniqueFd fd = make_dmabuf(8192);
    constexpr std::uintptr_t address = 0x100010;
    const auto to = right_end().register_dmabuf(fd.get(), 8, 4096, address);
    ASSERT_TRUE(to) << to.message();
    TestMemory from = left_memory(1000);
    from.fill(pattern(1000));
    Request receive;
    Request send;
    ASSERT_EQ(right().irecv(*to, reinterpret_cast<void*>(address + 100), 1000, 7, receive),
              code(0));
    ASSERT_EQ(left().isend(from.memory(), from.data(), 1000, 7, send), code(0));
    EXPECT_EQ(finish(right(), receive).error, code(0)) << right().reason();
    EXPECT_EQ(finish(left(), send).error, code(0)) << left().reason();
    std::vector<std::byte> bytes(1000);
    ASSERT_EQ(::pread(fd.get(), bytes.data(), bytes.size(), 108), 1000);
    EXPECT_TRUE(bytes == from.bytes(0, 1000));
}

using Registrations = TransportTest;

TEST_F(Registrations, outside_the_cache_unlock_the_mutex_of_the_program_and_end_with_their_memory) {
    std::mutex mutex;
    options_.mutex = &mutex;
    ASSERT_NO_FATAL_FAILURE(open());
    constexpr std::size_t size = 8192;
    const UniqueFd fd = make_dmabuf(size);
    std::vector<std::byte> bytes(size);
    unsigned calls = 0;
    before_each_call([&](std::string_view verb) {
        if (verb.starts_with("ibv_reg_")) {
            EXPECT_TRUE(is_free(mutex)) << verb;
            ++calls;
        }
    });
    {
        const std::unique_lock lock(mutex);
        const std::size_t before = softverbs_live(SOFTVERBS_MR);
        const auto expect_registered = [&](const Result<Memory>& memory) {
            EXPECT_TRUE(memory) << memory.message();
            EXPECT_FALSE(is_free(mutex)) << "the caller still has the lock";
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
        };
        expect_registered(right_end().register_uncached(bytes.data(), size));
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
        expect_registered(right_end().register_dmabuf(fd.get(), 0, size, 0x10000));
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
        EXPECT_EQ(right_end().register_uncached(bytes.data(), 0).error(), EINVAL);
        EXPECT_FALSE(is_free(mutex)) << "the caller still has the lock after an error";
    }
    EXPECT_EQ(calls, 2U);
    forget_calls();
    disconnect();
}

} // namespace
} // namespace rdmabuf::testing
