// SPDX-License-Identifier: BSD-3-Clause
// Mirrors DMTest and DeviceMemoryAPITest of rdma-core's pyverbs by name and intent;
// DeviceMemoryTest, which moves data, is in tests/support.
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <rdmabuf/device_memory.hpp>

#include "softverbs_fixture.hpp"

namespace rdmabuf {
namespace {

using testing::Basics;
using testing::error_of;
using testing::fails_with;
using testing::SoftverbsTest;

constexpr const char* alloc = "ibv_alloc_dm";
constexpr const char* to_dm = "ibv_memcpy_to_dm";
constexpr const char* from_dm = "ibv_memcpy_from_dm";
constexpr const char* reg = "ibv_reg_dm_mr";

class DMTest : public SoftverbsTest {
  protected:
    Basics basics_;
    alignas(8) std::array<std::byte, 256> host_{};

    std::span<std::byte> host(std::size_t offset, std::size_t length) {
        return std::span(host_).subspan(offset, length);
    }
};

TEST_F(DMTest, CreateDm) {
    const DeviceMemory memory(basics_.context, 4096, {.log2_alignment = 6});
    EXPECT_EQ(memory.size(), 4096U);
    EXPECT_EQ(memory.context(), basics_.context);
    EXPECT_EQ(softverbs_live(SOFTVERBS_DM), 1U);
}

TEST_F(DMTest, CreateDmBadFlow) {
    EXPECT_THAT(error_of([&] { DeviceMemory(basics_.context, 4097); }),
                fails_with(alloc, EINVAL,
                           "4097 bytes aligned to 2^0 on soft0, which reports 4096 bytes of "
                           "device memory"));
    EXPECT_THAT(error_of([&] { DeviceMemory(basics_.context, 64, {.log2_alignment = 20}); }),
                fails_with(alloc, EINVAL, "64 bytes aligned to 2^20"));
}

TEST_F(DMTest, ASizeOfZeroIsRefused) {
    EXPECT_THAT(error_of([&] { DeviceMemory(basics_.context, 0); }),
                fails_with(alloc, EINVAL, "a size of 0"));
}

TEST_F(DMTest, ADeviceWithoutAnySaysSo) {
    testing::remove_feature(SOFTVERBS_FEATURE_DM);
    testing::change_device([](ibv_device_attr_ex& attributes) { attributes.max_dm_size = 0; });
    const Context context = Context::open_first();
    EXPECT_THAT(error_of([&] { DeviceMemory(context, 64); }),
                fails_with(alloc, EOPNOTSUPP, "soft0, which reports no device memory"));
}

// Copies the device cannot do never reach it.

struct BadCopy {
    std::size_t offset, host_offset, length;
    int error;
    const char* text;
};
constexpr std::array bad_copies{
    BadCopy{2, 0, 4, EINVAL, "4 bytes at offset 2,"},
    BadCopy{0, 0, 6, EINVAL, "6 bytes at offset 0,"},
    BadCopy{0, 1, 4, EINVAL, "host memory 1 bytes past a multiple of 4"},
    BadCopy{0, 2, 4, EINVAL, "host memory 2 bytes past a multiple of 4"},
    BadCopy{68, 0, 4, ERANGE, "4 bytes at offset 68 do not lie inside the device memory of 64"},
    BadCopy{0, 0, 68, ERANGE, "68 bytes at offset 0 do not lie inside the device memory of 64"},
    BadCopy{60, 0, 8, ERANGE, "8 bytes at offset 60 do not lie inside"},
    BadCopy{std::numeric_limits<std::size_t>::max() - 3, 0, 8, ERANGE, "do not lie inside"},
};

TEST_F(DMTest, BadCopiesAreRefusedBeforeTheDriverSeesThem) {
    DeviceMemory memory(basics_.context, 64);
    for (const BadCopy& bad : bad_copies) {
        const auto bytes = host(bad.host_offset, bad.length);
        EXPECT_THAT(error_of([&] { memory.copy_in(bad.offset, bytes); }),
                    fails_with(to_dm, bad.error, bad.text));
        EXPECT_THAT(error_of([&] { memory.copy_out(bad.offset, bytes); }),
                    fails_with(from_dm, bad.error, bad.text));
        EXPECT_EQ(memory.try_copy_in(bad.offset, bytes), Status(bad.error)) << bad.text;
        EXPECT_EQ(memory.try_copy_out(bad.offset, bytes), Status(bad.error)) << bad.text;
    }
    EXPECT_EQ(testing::record().dm_copies, 0U);
}

TEST_F(DMTest, CopiesAtTheEdgesAreMade) {
    DeviceMemory memory(basics_.context, 64);
    EXPECT_TRUE(memory.try_copy_in(0, host(0, 64)));
    EXPECT_TRUE(memory.try_copy_in(60, host(4, 4)));
    EXPECT_TRUE(memory.try_copy_out(64, host(0, 0)));
    EXPECT_EQ(testing::record().dm_copies, 3U);
}

TEST_F(DMTest, CopiesThatTheDriverRefusesSayWhatItSaid) {
    DeviceMemory memory(basics_.context, 64);
    testing::fail_next(to_dm, EFAULT);
    EXPECT_THAT(error_of([&] { memory.copy_in(0, host(0, 4)); }), fails_with(to_dm, EFAULT, ""));
    testing::fail_next(from_dm, EIO);
    EXPECT_EQ(memory.try_copy_out(0, host(0, 4)), Status(EIO));
}

TEST_F(DMTest, CopyFunctionsThatAProviderNeverSetAreRefusedAndNotCalled) {
    const unsigned able = softverbs_features(0);
    for (const unsigned garbage : {0U, unsigned{SOFTVERBS_FEATURE_DM_COPY_GARBAGE}}) {
        ASSERT_EQ(
            softverbs_set_features(0, (able & ~unsigned{SOFTVERBS_FEATURE_DM_COPY}) | garbage), 0);
        DeviceMemory memory(basics_.context, 64);
        EXPECT_THAT(error_of([&] { memory.copy_in(0, host(0, 4)); }),
                    fails_with(to_dm, EOPNOTSUPP, "the provider of soft0 cannot copy"));
        EXPECT_THAT(error_of([&] { memory.copy_out(0, host(0, 4)); }),
                    fails_with(from_dm, EOPNOTSUPP, "access the memory by RDMA"));
        EXPECT_EQ(memory.try_copy_in(0, host(0, 4)), Status(EOPNOTSUPP));
        EXPECT_EQ(memory.try_copy_out(0, host(0, 4)), Status(EOPNOTSUPP));
    }
}

ibv_dm* (*alloc_original)(ibv_context* context, ibv_alloc_dm_attr* attributes);
/// Lies in a loaded object, as the constants of the provider do.
int data_of_the_program;

/// As the provider mana: memory of malloc(3), which holds what was there before.
ibv_dm* alloc_with_leftovers(ibv_context* context, ibv_alloc_dm_attr* attributes) {
    ibv_dm* const dm = alloc_original(context, attributes);
    void* const leftover = &data_of_the_program;
    std::memcpy(&dm->memcpy_to_dm, &leftover, sizeof(leftover));
    std::memcpy(&dm->memcpy_from_dm, &leftover, sizeof(leftover));
    return dm;
}

TEST_F(DMTest, CopyFunctionsThatPointToDataAreRefusedAndNotCalled) {
    verbs_context* const operations = verbs_get_ctx(basics_.context.native());
    alloc_original = std::exchange(operations->alloc_dm, alloc_with_leftovers);
    DeviceMemory memory(basics_.context, 64);
    operations->alloc_dm = alloc_original;
    EXPECT_THAT(error_of([&] { memory.copy_in(0, host(0, 4)); }),
                fails_with(to_dm, EOPNOTSUPP, "the provider of soft0 cannot copy"));
    EXPECT_EQ(memory.try_copy_out(0, host(0, 4)), Status(EOPNOTSUPP));
}

class DeviceMemoryAPITest : public DMTest {
  protected:
    DeviceMemory memory_{basics_.context, 100};

    static const testing::Registration& last() { return testing::record().registrations.back(); }
    auto refusal(const DeviceMemoryMROptions& options) {
        return error_of([&] { DeviceMemoryMR(basics_.pd, memory_, options); });
    }
};

TEST_F(DeviceMemoryAPITest, CreateDmMr) {
    const DeviceMemoryMR region(basics_.pd, memory_,
                                {.access = full_access, .offset = 40, .length = 52});
    EXPECT_EQ(last().start, 40U);
    EXPECT_EQ(last().length, 52U);
    EXPECT_EQ(last().access, static_cast<unsigned>(full_access) | IBV_ACCESS_ZERO_BASED);
    EXPECT_EQ(region.iova(), 0U);
    EXPECT_EQ(region.length(), 52U);
    EXPECT_EQ(region.access(), full_access | Access::zero_based);
    EXPECT_EQ(region.sge(4, 8).addr, 4U);
    EXPECT_EQ(region.remote(), (RemoteRegion{.address = 0, .length = 52, .rkey = region.rkey()}));
}

TEST_F(DeviceMemoryAPITest, CreateDmMrOfAllFromAnOffsetOn) {
    EXPECT_EQ(DeviceMemoryMR(basics_.pd, memory_).length(), 100U);
    EXPECT_EQ(last().access, static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
    EXPECT_EQ(DeviceMemoryMR(basics_.pd, memory_, {.offset = 60}).length(), 40U);
    EXPECT_EQ(last().length, 40U);
    const Access zero_based = Access::local_write | Access::zero_based;
    EXPECT_EQ(DeviceMemoryMR(basics_.pd, memory_, {.access = zero_based}).access(), zero_based);
}

TEST_F(DeviceMemoryAPITest, DmBadRegistration) {
    EXPECT_THAT(refusal({.length = 104}),
                fails_with(reg, ERANGE,
                           "104 bytes at offset 0 do not lie inside the device memory of 100"));
    EXPECT_THAT(refusal({.offset = 60, .length = 41}),
                fails_with(reg, ERANGE, "41 bytes at offset 60"));
    EXPECT_THAT(refusal({.offset = 101}), fails_with(reg, ERANGE, "0 bytes at offset 101"));
    EXPECT_THAT(refusal({.offset = std::numeric_limits<std::size_t>::max(), .length = 2}),
                fails_with(reg, ERANGE, "2 bytes at offset 18446744073709551615"));
    EXPECT_THAT(refusal({.offset = 100}), fails_with(reg, EINVAL, "a length of 0"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(DeviceMemoryAPITest, FlagsThatDeviceMemoryDoesNotHaveAreRefusedByName) {
    for (const Access flag : {Access::relaxed_ordering, Access::on_demand, Access::hugetlb,
                              Access::memory_window_bind}) {
        EXPECT_THAT(
            refusal({.access = Access::local_write | flag}),
            fails_with(reg, EINVAL, "device memory cannot be registered with " + to_string(flag)));
    }
    EXPECT_THAT(refusal({.access = Access::remote_atomic}),
                fails_with(reg, EINVAL, "remote_atomic needs local_write too"));
    EXPECT_TRUE(testing::record().registrations.empty());
}

TEST_F(DeviceMemoryAPITest, RegistrationThatTheDriverRefusesHasTheNumbers) {
    testing::fail_next(reg, ENOMEM);
    EXPECT_THAT(refusal({.offset = 4, .length = 8}),
                fails_with(reg, ENOMEM, "8 bytes at offset 4 of device memory of 100 bytes"));
}

} // namespace
} // namespace rdmabuf
