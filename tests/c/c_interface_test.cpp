// SPDX-License-Identifier: BSD-3-Clause
// The C interface with memory of the fake CUDA driver, on softverbs: what private copies of this
// code get wrong.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/rdmabuf.h>

#include "fake_driver.hpp"
#include "softverbs_fixture.hpp"
#include "support.hpp"

extern "C" int cuInit(unsigned flags); // NOLINT(readability-identifier-naming): CUDA's name

namespace rdmabuf::testing {
namespace {

namespace fake = fake_driver;
using ::testing::HasSubstr;

template <class Struct>
Struct sized() {
    Struct object{};
    object.size = sizeof object;
    return object;
}

const void* pointer(std::uint64_t address) {
    return reinterpret_cast<const void*>(address);
}

class CInterface : public SoftverbsTest {
  public:
    CInterface() {
        fake::reset(2);
        EXPECT_EQ(::cuInit(0), 0); // The program uses the driver.
        fake::program_context();
        EXPECT_EQ(rdmabuf_resolver_create(&resolver_), 0) << rdmabuf_last_error();
    }
    ~CInterface() override {
        rdmabuf_resolver_destroy(resolver_);
        fake::reset(0);
    }
    CInterface(const CInterface&) = delete;
    CInterface& operator=(const CInterface&) = delete;

  protected:
    int register_range(std::uint64_t address, std::size_t length) {
        return rdmabuf_register(resolver_, pd_.native(), pointer(address), length, &options_,
                                &region_);
    }

    rdmabuf_resolver* resolver_ = nullptr;
    rdmabuf_region* region_ = nullptr;
    rdmabuf_options options_ = sized<rdmabuf_options>();
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    const std::size_t page_ = page_size();
};

TEST_F(CInterface, FindsTheAllocationOfAnAddress) {
    const std::uint64_t address = fake::make(fake::Kind::device, 4 * page_, 1);
    auto found = sized<rdmabuf_allocation>();
    ASSERT_EQ(rdmabuf_find(resolver_, pointer(address + page_ + 3), &found), 0)
        << rdmabuf_last_error();
    EXPECT_EQ(found.base, address);
    EXPECT_EQ(found.length, 4 * page_);
    EXPECT_EQ(found.kind, RDMABUF_KIND_DEVICE);
    EXPECT_STREQ(found.exporter, "cuda");
    EXPECT_NE(found.generation, 0U);
    const int on_stack = 0;
    ASSERT_EQ(rdmabuf_find(resolver_, &on_stack, &found), 0);
    EXPECT_EQ(found.kind, RDMABUF_KIND_HOST);
    EXPECT_STREQ(found.exporter, "");
    fake::free(address);
}

// Others pass the pointer as it is to a driver that wants whole pages, or round the region up.
TEST_F(CInterface, RegistersASubRangeThatIsNotAligned) {
    const std::uint64_t address = fake::make(fake::Kind::device, 4 * page_);
    ASSERT_EQ(register_range(address + 7, page_), 0) << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_mr(region_, 0)->length, page_);
    EXPECT_EQ(rdmabuf_iova(region_), address + 7);
    EXPECT_EQ(rdmabuf_path(region_, 0), RDMABUF_PATH_DMABUF);
    EXPECT_THAT(rdmabuf_trail_json(region_),
                HasSubstr(R"("path": "dmabuf", "call": "ibv_reg_dmabuf_mr", "errno": 0)"));
    EXPECT_EQ(rdmabuf_deregister(region_), 0);
    fake::free(address);
}

// NIXL issue 1126, Ray issue 65701: memory that was mapped anew at the same address keeps the keys
// of the old one.
TEST_F(CInterface, ACheckedCacheNoticesMemoryThatWasReplaced) {
    const std::uint64_t address = fake::reserve(2 * page_);
    fake::place(address, fake::Kind::mapped, 2 * page_);
    auto options = sized<rdmabuf_cache_options>();
    options.checked = 1;
    ibv_pd* const pd = pd_.native();
    rdmabuf_cache* cache = nullptr;
    ASSERT_EQ(rdmabuf_cache_create(resolver_, &pd, 1, &options, &cache), 0) << rdmabuf_last_error();
    const auto keys = [&] {
        auto found = sized<rdmabuf_keys>();
        rdmabuf_lease* lease = nullptr;
        EXPECT_EQ(rdmabuf_cache_acquire(cache, pointer(address), page_, IBV_ACCESS_LOCAL_WRITE,
                                        &found, &lease),
                  0)
            << rdmabuf_last_error();
        rdmabuf_lease_release(lease);
        return found.lkey;
    };
    const std::uint32_t first = keys();
    EXPECT_EQ(keys(), first);
    ASSERT_EQ(register_range(address, page_), 0);
    fake::replace(address);
    EXPECT_NE(keys(), first);
    auto statistics = sized<rdmabuf_statistics>();
    ASSERT_EQ(rdmabuf_cache_statistics(cache, &statistics), 0);
    EXPECT_EQ(statistics.stale, 1U);
    EXPECT_EQ(statistics.hits, 1U);
    EXPECT_EQ(rdmabuf_verify(region_), -ENODEV);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("freed or replaced"));
    EXPECT_EQ(rdmabuf_deregister(region_), 0);
    rdmabuf_cache_destroy(cache);
    fake::free(address);
}

// Others keep the regions and descriptors of the first NICs when a later one refuses.
TEST_F(CInterface, RegistersWithAllNicsOrWithNone) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    std::vector<ProtectionDomain> domains;
    std::vector<ibv_pd*> pds;
    domains.reserve(4);
    pds.reserve(4);
    for (int i = 0; i < 4; ++i) {
        pds.push_back(domains.emplace_back(context_).native());
    }
    const auto descriptors = open_descriptors();
    ASSERT_EQ(softverbs_set_faults("reg_dmabuf_mr#3=ENOSPC"), 0);
    EXPECT_EQ(rdmabuf_register_many(resolver_, pds.data(), pds.size(), pointer(address), page_,
                                    nullptr, &region_),
              -ENOSPC);
    EXPECT_EQ(region_, nullptr);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    EXPECT_EQ(open_descriptors(), descriptors);
    ASSERT_EQ(softverbs_set_faults(""), 0);
    ASSERT_EQ(rdmabuf_register_many(resolver_, pds.data(), pds.size(), pointer(address), page_,
                                    nullptr, &region_),
              0)
        << rdmabuf_last_error();
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 4U);
    EXPECT_EQ(rdmabuf_deregister(region_), 0);
    EXPECT_EQ(open_descriptors(), descriptors);
    fake::free(address);
}

// Others call ibv_reg_mr() with a device pointer then, which with a module for peer memory even
// succeeds.
TEST_F(CInterface, AFailedExportDoesNotBecomeHostMemory) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    fake::fail("cuMemGetHandleForAddressRange", 801, 1, 8);
    EXPECT_LT(register_range(address, page_), 0);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("cuMemGetHandleForAddressRange"));
    EXPECT_THAT(rdmabuf_last_error(), ::testing::Not(HasSubstr("ibv_reg_mr on")));
    fake::free(address);
}

// Others hand the program's own descriptor to the kernel and close it, or close it twice.
TEST_F(CInterface, TheDescriptorOfAddedMemoryStaysThePrograms) {
    const int fd = ::memfd_create("memory", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(2 * page_)), 0);
    auto memory = sized<rdmabuf_external_memory>();
    memory.address = 16 * page_;
    memory.length = page_;
    memory.offset = page_;
    memory.fd = fd;
    rdmabuf_external* external = nullptr;
    ASSERT_EQ(rdmabuf_external_add(resolver_, &memory, &external), 0) << rdmabuf_last_error();
    ASSERT_EQ(::close(fd), 0);
    ASSERT_EQ(register_range(16 * page_ + 8, page_ - 8), 0) << rdmabuf_last_error();
    auto range = sized<rdmabuf_export>();
    ASSERT_EQ(rdmabuf_export_range(resolver_, pointer(16 * page_ + 8), 8, RDMABUF_MAPPING_DEFAULT,
                                   &range),
              0)
        << rdmabuf_last_error();
    EXPECT_EQ(range.offset, page_ + 8);
    EXPECT_EQ(::fcntl(range.fd, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::close(range.fd), 0);
    rdmabuf_external_remove(external);
    EXPECT_EQ(rdmabuf_deregister(region_), 0);
}

// Others find the old registration by its pointer alone, and use a region that is too short.
TEST_F(CInterface, APointerWithAnotherLengthIsRegisteredAnew) {
    std::uint64_t address = fake::make(fake::Kind::device, 4 * page_);
    ibv_pd* const pd = pd_.native();
    rdmabuf_cache* cache = nullptr;
    ASSERT_EQ(rdmabuf_cache_create(resolver_, &pd, 1, nullptr, &cache), 0) << rdmabuf_last_error();
    rdmabuf_lease* shorter = nullptr;
    rdmabuf_lease* longer = nullptr;
    auto keys = sized<rdmabuf_keys>();
    ASSERT_EQ(rdmabuf_cache_acquire(cache, pointer(address), page_, IBV_ACCESS_LOCAL_WRITE, nullptr,
                                    &shorter),
              0);
    ASSERT_EQ(rdmabuf_cache_acquire(cache, pointer(address), 4 * page_, IBV_ACCESS_LOCAL_WRITE,
                                    &keys, &longer),
              0);
    EXPECT_EQ(keys.address, address);
    EXPECT_EQ(keys.length, 4 * page_);
    EXPECT_EQ(rdmabuf_lease_keys(longer, 1, &keys), -EINVAL);
    rdmabuf_lease_release(shorter);
    rdmabuf_lease_release(longer);
    rdmabuf_cache_invalidate(cache, pointer(address), 4 * page_);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    rdmabuf_cache_destroy(cache);
    fake::free(address);
}

// Other tools print 524 as "Unknown error" or as another errno.
TEST_F(CInterface, NamesTheErrnoOfTheKernel) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    fail_dmabufs(0, 524);
    EXPECT_EQ(register_range(address, page_), -524);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("ENOTSUPP"));
    char text[200];
    const std::size_t length = rdmabuf_explain(-524, "ibv_reg_dmabuf_mr", text, sizeof text);
    EXPECT_EQ(length, std::strlen(text));
    EXPECT_THAT(text, HasSubstr("ENOTSUPP"));
    EXPECT_THAT(text, HasSubstr("peer-to-peer"));
    EXPECT_GT(rdmabuf_explain(EFAULT, "ibv_reg_mr", text, 8), 8U);
    EXPECT_EQ(std::strlen(text), 7U);
    fail_dmabufs(0, 0);
    fake::free(address);
}

TEST_F(CInterface, RefusesWhatItDoesNotKnow) {
    EXPECT_EQ(rdmabuf_register(resolver_, nullptr, this, 8, nullptr, &region_), -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("null pointer"));
    struct {
        rdmabuf_options options;
        std::uint64_t added;
    } newer{sized<rdmabuf_options>(), 1};
    newer.options.size = sizeof newer;
    EXPECT_EQ(rdmabuf_register(resolver_, pd_.native(), this, 8, &newer.options, &region_),
              -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("not known to this version"));
    newer.added = 0;
    alignas(8) char bytes[64];
    ASSERT_EQ(rdmabuf_register(resolver_, pd_.native(), bytes, 64, &newer.options, &region_), 0)
        << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_path(region_, 0), RDMABUF_PATH_HOST);
    EXPECT_EQ(rdmabuf_deregister(region_), 0);
    options_.paths = 1 << 10;
    EXPECT_EQ(register_range(reinterpret_cast<std::uintptr_t>(bytes), 64), -EINVAL);
    options_.size = 0;
    EXPECT_EQ(register_range(reinterpret_cast<std::uintptr_t>(bytes), 64), -EINVAL);
    auto unset = rdmabuf_allocation{};
    EXPECT_EQ(rdmabuf_find(resolver_, bytes, &unset), -EINVAL);
}

TEST_F(CInterface, FlushesWhereADriverMustAndSaysWhereItNeedNot) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    const int flushed = rdmabuf_flush(resolver_, pointer(address));
    EXPECT_GE(flushed, 0) << rdmabuf_last_error();
    EXPECT_EQ(fake::calls("cuFlushGPUDirectRDMAWrites"), flushed == 0 ? 1U : 0U);
    EXPECT_EQ(rdmabuf_flush(resolver_, &address), 1);
    char names[1][64];
    EXPECT_GE(rdmabuf_nearest(resolver_, pointer(address), names, 1), 1);
    EXPECT_STREQ(names[0], "soft0");
    fake::free(address);
}

} // namespace
} // namespace rdmabuf::testing
