// SPDX-License-Identifier: BSD-3-Clause
// The C interface with memory of the fake CUDA driver, on softverbs: what private copies of this
// code get wrong.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/rdmabuf.h>

#include "fake_driver.hpp"
#include "recorder/verbs_recorder.hpp"
#include "softverbs_fixture.hpp"
#include "support.hpp"
#include "waiting.hpp"

extern "C" int cuInit(unsigned flags); // NOLINT(readability-identifier-naming): CUDA's name

namespace rdmabuf::testing {
namespace {

namespace fake = fake_driver;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const void* pointer(std::uint64_t address) {
    return reinterpret_cast<const void*>(address);
}
std::uintptr_t number_of(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
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
        rdmabuf_resolver_destroy(&resolver_);
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
    rdmabuf_options options_ = RDMABUF_INIT(options_);
    Context context_ = Context::open_first();
    ProtectionDomain pd_{context_};
    const std::size_t page_ = page_size();
};

TEST_F(CInterface, FindsTheAllocationOfAnAddress) {
    const std::uint64_t address = fake::make(fake::Kind::device, 4 * page_, 1);
    rdmabuf_allocation found = RDMABUF_INIT(found);
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

// Mooncake pull request 2035: with "offset = 0" the region points at the wrong bytes. Monarch pull
// request 4285: the driver refuses tensors whose address or size is not aligned to a page.
TEST_F(CInterface, RegistersASubRangeThatIsNotAligned) {
    const std::uint64_t address = fake::make(fake::Kind::device, 4 * page_);
    forget_calls();
    const std::uint64_t begin = address + page_ + 7;
    ASSERT_EQ(register_range(begin, page_), 0) << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_mr(region_, 0)->length, page_);
    EXPECT_EQ(rdmabuf_iova(region_), begin);
    rdmabuf_export range = RDMABUF_INIT(range);
    ASSERT_EQ(rdmabuf_export_range(resolver_, pointer(begin), page_, 0, &range), 0);
    EXPECT_EQ(::close(range.fd), 0);
    ASSERT_EQ(record().registrations.size(), 1U);
    EXPECT_EQ(record().registrations[0].start, range.offset);
    EXPECT_EQ(rdmabuf_path(region_, 0), RDMABUF_PATH_DMABUF);
    EXPECT_THAT(rdmabuf_trail_json(region_),
                HasSubstr(R"("path": "dmabuf", "call": "ibv_reg_dmabuf_mr", "errno": 0)"));
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    fake::free(address);
}

// NIXL issue 1126: "local protection error" after the physical memory behind the same virtual
// address was replaced, and the old keys were used.
TEST_F(CInterface, ACheckedCacheNoticesMemoryThatWasReplaced) {
    const std::uint64_t address = fake::reserve(2 * page_);
    fake::place(address, fake::Kind::mapped, 2 * page_);
    rdmabuf_cache_options options = RDMABUF_INIT(options);
    options.checked = 1;
    ibv_pd* const pd = pd_.native();
    rdmabuf_cache* cache = nullptr;
    ASSERT_EQ(rdmabuf_cache_create(resolver_, &pd, 1, &options, &cache), 0) << rdmabuf_last_error();
    const auto keys = [&] {
        rdmabuf_keys found = RDMABUF_INIT(found);
        rdmabuf_lease* lease = nullptr;
        EXPECT_EQ(rdmabuf_cache_acquire(cache, pointer(address), page_, IBV_ACCESS_LOCAL_WRITE,
                                        &found, &lease),
                  0)
            << rdmabuf_last_error();
        rdmabuf_lease_release(&lease);
        return found.lkey;
    };
    const std::uint32_t first = keys();
    EXPECT_EQ(keys(), first);
    ASSERT_EQ(register_range(address, page_), 0);
    fake::replace(address);
    EXPECT_NE(keys(), first);
    rdmabuf_statistics statistics = RDMABUF_INIT(statistics);
    ASSERT_EQ(rdmabuf_cache_statistics(cache, &statistics), 0);
    EXPECT_EQ(statistics.stale, 1U);
    EXPECT_EQ(statistics.hits, 1U);
    EXPECT_EQ(rdmabuf_verify(region_), -ENODEV);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("freed or replaced"));
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    rdmabuf_cache_destroy(&cache);
    fake::free(address);
}

// NCCL pull request 2267: the descriptor stays open if the NIC refuses it and another path is
// taken. libfabric pull request 12828: each registration leaks one. The regions of the NICs before
// the one that refuses stay registered likewise.
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
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    EXPECT_EQ(open_descriptors(), descriptors);
    fake::free(address);
}

// MORI pull request 355: the fallback is ibv_reg_mr() with the device pointer. mscclpp issue 657:
// that ends with "ibv_reg_mr failed (errno 14)", which does not name the cause.
TEST_F(CInterface, AFailedExportDoesNotBecomeHostMemory) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    fake::fail("cuMemGetHandleForAddressRange", 801, 1, 8);
    EXPECT_LT(register_range(address, page_), 0);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("cuMemGetHandleForAddressRange"));
    EXPECT_THAT(rdmabuf_last_error(), ::testing::Not(HasSubstr("ibv_reg_mr on")));
    fake::free(address);
}

// As for memory whose driver permits one region for each dma-buf, such as that of Neuron.
TEST_F(CInterface, RegistersEachDmaBufOfTheSameMemoryAtOneIova) {
    const UniqueFd memfd(::memfd_create("memory", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(memfd.get(), static_cast<off_t>(page_)), 0);
    ibv_pd* const pd = pd_.native();
    rdmabuf_options options = RDMABUF_INIT(options);
    options.has_iova = 1;
    options.iova = 16 * page_;
    for (const std::uint64_t address : {16 * page_, 32 * page_}) {
        rdmabuf_external_memory memory = RDMABUF_INIT(memory);
        memory.address = address;
        memory.length = page_;
        memory.fd = memfd.get();
        rdmabuf_external* external = nullptr;
        ASSERT_EQ(rdmabuf_external_add(resolver_, &memory, &external), 0) << rdmabuf_last_error();
        ASSERT_EQ(rdmabuf_register(resolver_, pd, pointer(address), page_, &options, &region_), 0)
            << rdmabuf_last_error();
        EXPECT_EQ(rdmabuf_iova(region_), 16 * page_);
        EXPECT_EQ(rdmabuf_path(region_, 0), RDMABUF_PATH_DMABUF);
        rdmabuf_external_remove(&external);
        EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    }
}

// libfabric pull request 11087: "not sure whether we can close the fd before we are done with the
// MR". The library has a duplicate, which it alone closes.
TEST_F(CInterface, TheDescriptorOfAddedMemoryStaysThePrograms) {
    const auto descriptors = open_descriptors();
    const int fd = ::memfd_create("memory", MFD_CLOEXEC);
    ASSERT_EQ(::ftruncate(fd, static_cast<off_t>(2 * page_)), 0);
    rdmabuf_external_memory memory = RDMABUF_INIT(memory);
    memory.address = 16 * page_;
    memory.length = page_;
    memory.offset = page_;
    memory.fd = fd;
    rdmabuf_external* external = nullptr;
    ASSERT_EQ(rdmabuf_external_add(resolver_, &memory, &external), 0) << rdmabuf_last_error();
    ASSERT_EQ(::close(fd), 0);
    forget_calls();
    ASSERT_EQ(register_range(16 * page_ + 8, page_ - 8), 0) << rdmabuf_last_error();
    ASSERT_EQ(record().registrations.size(), 1U);
    EXPECT_EQ(record().registrations[0].start, page_ + 8);
    rdmabuf_export range = RDMABUF_INIT(range);
    ASSERT_EQ(rdmabuf_export_range(resolver_, pointer(16 * page_ + 8), 8, RDMABUF_MAPPING_DEFAULT,
                                   &range),
              0)
        << rdmabuf_last_error();
    EXPECT_EQ(range.offset, page_ + 8);
    EXPECT_EQ(::fcntl(range.fd, F_GETFD), FD_CLOEXEC);
    EXPECT_EQ(::close(range.fd), 0);
    rdmabuf_external_remove(&external);
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    EXPECT_EQ(open_descriptors(), descriptors);
}

// Ray issue 65701: a cache that is keyed on the pointer hits after the memory was freed and a
// longer buffer got the same address, so the region is too short.
TEST_F(CInterface, APointerWithAnotherLengthIsRegisteredAnew) {
    std::uint64_t address = fake::make(fake::Kind::device, 4 * page_);
    ibv_pd* const pd = pd_.native();
    rdmabuf_cache* cache = nullptr;
    ASSERT_EQ(rdmabuf_cache_create(resolver_, &pd, 1, nullptr, &cache), 0) << rdmabuf_last_error();
    rdmabuf_lease* shorter = nullptr;
    rdmabuf_lease* longer = nullptr;
    rdmabuf_keys keys = RDMABUF_INIT(keys);
    ASSERT_EQ(rdmabuf_cache_acquire(cache, pointer(address), page_, IBV_ACCESS_LOCAL_WRITE, nullptr,
                                    &shorter),
              0);
    ASSERT_EQ(rdmabuf_cache_acquire(cache, pointer(address), 4 * page_, IBV_ACCESS_LOCAL_WRITE,
                                    &keys, &longer),
              0);
    EXPECT_EQ(keys.address, address);
    EXPECT_EQ(keys.length, 4 * page_);
    EXPECT_EQ(rdmabuf_lease_keys(longer, 1, &keys), -EINVAL);
    rdmabuf_lease_release(&shorter);
    rdmabuf_lease_release(&longer);
    rdmabuf_cache_invalidate(cache, pointer(address), 4 * page_);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    rdmabuf_cache_destroy(&cache);
    fake::free(address);
}

// UCX pull request 11584: "ibv_reg_dmabuf_mr(...) failed: Unknown error 524".
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
    const auto explained = [](int error) {
        char words[300];
        rdmabuf_explain(error, "ibv_reg_dmabuf_mr", words, sizeof words);
        return std::string(words);
    };
    EXPECT_THAT(explained(EBADF), HasSubstr("is not open"));
    EXPECT_THAT(explained(EINVAL), HasSubstr("is not that of a dma-buf"));
    EXPECT_THAT(explained(EACCES), HasSubstr("open for reading only"));
    EXPECT_THAT(explained(ENODEV), HasSubstr("was revoked"));
    EXPECT_GT(rdmabuf_explain(EFAULT, "ibv_reg_mr", text, 8), 8U);
    EXPECT_EQ(std::strlen(text), 7U);
    fail_dmabufs(0, 0);
    fake::free(address);
}

TEST_F(CInterface, RefusesWhatItDoesNotKnow) {
    EXPECT_EQ(rdmabuf_register(resolver_, nullptr, this, 8, nullptr, &region_), -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), StartsWith("rdmabuf_register: "));
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("null pointer"));
    EXPECT_EQ(rdmabuf_register_many(resolver_, nullptr, 1, this, 8, nullptr, &region_), -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), StartsWith("rdmabuf_register_many: "));
    ibv_pd* const pd = pd_.native();
    EXPECT_EQ(rdmabuf_register_many(resolver_, &pd, 0, this, 8, nullptr, &region_), -EINVAL);
    EXPECT_EQ(rdmabuf_register(resolver_, pd, this, 0, nullptr, &region_), -EINVAL);
    rdmabuf_cache_options reserved = RDMABUF_INIT(reserved);
    reserved.reserved = 1;
    rdmabuf_cache* cache = nullptr;
    EXPECT_EQ(rdmabuf_cache_create(resolver_, &pd, 1, &reserved, &cache), -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("reserved"));
    struct {
        rdmabuf_options options;
        std::uint64_t added;
    } newer{options_, 1};
    newer.options.size = sizeof newer;
    EXPECT_EQ(rdmabuf_register(resolver_, pd_.native(), this, 8, &newer.options, &region_),
              -EINVAL);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("not known to this version"));
    newer.added = 0;
    alignas(8) char bytes[64];
    ASSERT_EQ(rdmabuf_register(resolver_, pd_.native(), bytes, 64, &newer.options, &region_), 0)
        << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_path(region_, 0), RDMABUF_PATH_HOST);
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    options_.paths = 1 << 10;
    EXPECT_EQ(register_range(number_of(bytes), 64), -EINVAL);
    options_.size = 0;
    EXPECT_EQ(register_range(number_of(bytes), 64), -EINVAL);
    auto unset = rdmabuf_allocation{};
    EXPECT_EQ(rdmabuf_find(resolver_, bytes, &unset), -EINVAL);
    rdmabuf_export range = RDMABUF_INIT(range);
    for (const std::size_t length : {std::size_t{0}, SIZE_MAX}) {
        EXPECT_EQ(rdmabuf_export_range(resolver_, bytes, length, 0, &range), -EINVAL);
    }
}

// A struct without its last members would lose the descriptor.
TEST_F(CInterface, ExportsOnlyIntoAWholeStruct) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    const auto descriptors = open_descriptors();
    rdmabuf_export range = RDMABUF_INIT(range);
    --range.size;
    EXPECT_EQ(rdmabuf_export_range(resolver_, pointer(address), page_, 0, &range), -EINVAL);
    EXPECT_EQ(open_descriptors(), descriptors);
    fake::free(address);
}

// The stack of a thread that pthread_cancel(3) ends cannot be unwound through the library, which
// has a copy of libgcc.
TEST_F(CInterface, IsNoCancellationPoint) {
    std::atomic<bool> is_cancelled = false;
    bool has_returned = false;
    std::thread thread([&] {
        EXPECT_TRUE(eventually([&] { return is_cancelled.load(); }));
        // It reads files, and open(2) is a cancellation point.
        EXPECT_GE(rdmabuf_nearest(resolver_, &is_cancelled, nullptr, 0), 0);
        has_returned = true;
    });
    ::pthread_cancel(thread.native_handle());
    is_cancelled = true;
    thread.join();
    EXPECT_TRUE(has_returned);
}

// As free(3) does. What is returned of no region is empty, so that a program can print it after a
// failed call.
TEST_F(CInterface, TakesNullForAnObject) {
    EXPECT_EQ(rdmabuf_mr(nullptr, 0), nullptr);
    EXPECT_EQ(rdmabuf_iova(nullptr), 0U);
    EXPECT_EQ(rdmabuf_path(nullptr, 0), 0);
    EXPECT_STREQ(rdmabuf_trail(nullptr), "");
    EXPECT_STREQ(rdmabuf_trail_json(nullptr), "[]");
    EXPECT_EQ(rdmabuf_verify(nullptr), -EINVAL);
    EXPECT_EQ(rdmabuf_deregister(nullptr), 0);
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    rdmabuf_cache_invalidate(nullptr, this, 1);
    rdmabuf_cache_destroy(nullptr);
    rdmabuf_lease_release(nullptr);
    rdmabuf_external_remove(nullptr);
    rdmabuf_resolver_destroy(nullptr);
    rdmabuf_keys keys = RDMABUF_INIT(keys);
    const rdmabuf_keys& same = keys;
    EXPECT_EQ(RDMABUF_INIT(same).size, sizeof keys);
    EXPECT_EQ(RDMABUF_INIT(*&keys).size, sizeof keys);
    rdmabuf_lease* lease = nullptr;
    EXPECT_EQ(rdmabuf_cache_acquire(nullptr, this, 1, 0, &keys, &lease), -EINVAL);
    EXPECT_EQ(rdmabuf_lease_keys(nullptr, 0, &keys), -EINVAL);
    rdmabuf_statistics statistics = RDMABUF_INIT(statistics);
    EXPECT_EQ(rdmabuf_cache_statistics(nullptr, &statistics), -EINVAL);
    EXPECT_EQ(rdmabuf_supports_dmabuf(nullptr), -EINVAL);
    EXPECT_EQ(rdmabuf_nearest(nullptr, this, nullptr, 0), -EINVAL);
    EXPECT_EQ(rdmabuf_flush(nullptr, this), -EINVAL);
    EXPECT_EQ(rdmabuf_explain(EBUSY, nullptr, nullptr, 0),
              std::strlen("Device or resource busy (EBUSY)"));
}

// The errno values that the header names.
TEST_F(CInterface, FailsWithTheErrnoOfTheHeader) {
    const std::uint64_t address = fake::make(fake::Kind::device, 2 * page_);
    EXPECT_EQ(register_range(address + page_, 2 * page_), -ERANGE) << rdmabuf_last_error();
    EXPECT_THAT(rdmabuf_last_error(), StartsWith("rdmabuf_register: "));
    EXPECT_EQ(register_range(16 * page_, 8), -EFAULT) << rdmabuf_last_error();
    options_.has_iova = 1;
    options_.iova = 1;
    EXPECT_EQ(register_range(address, page_), -EINVAL) << rdmabuf_last_error();
    options_ = RDMABUF_INIT(options_);
    options_.device_memory = 1;
    EXPECT_EQ(register_range(number_of(&page_), 8), -EFAULT) << rdmabuf_last_error();
    ASSERT_EQ(register_range(address, page_), 0) << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_verify(region_), 0);
    constexpr int no_device = 100;
    fake::fail("cuPointerGetAttributes", no_device);
    EXPECT_EQ(rdmabuf_verify(region_), -EIO) << rdmabuf_last_error();
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("the driver could not be asked about the memory"));
    EXPECT_EQ(rdmabuf_verify(region_), 0);
    rdmabuf_resolver_destroy(&resolver_);
    EXPECT_EQ(resolver_, nullptr);
    EXPECT_EQ(rdmabuf_verify(region_), -ENOENT) << rdmabuf_last_error();
    ASSERT_EQ(softverbs_set_faults("dereg_mr#1=EBUSY"), 0);
    EXPECT_EQ(rdmabuf_deregister(&region_), -EBUSY);
    EXPECT_STREQ(rdmabuf_last_error(),
                 "ibv_dereg_mr: Device or resource busy (EBUSY): a memory window is bound to the "
                 "region: deallocate it first");
    softverbs_set_faults("dereg_mr#1=EIO");
    EXPECT_EQ(rdmabuf_deregister(&region_), -EIO);
    EXPECT_THAT(rdmabuf_last_error(), HasSubstr("the device may have been reset or removed"));
    ASSERT_NE(region_, nullptr);
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    EXPECT_EQ(region_, nullptr);
    EXPECT_EQ(rdmabuf_deregister(&region_), 0);
    fake::free(address);
}

TEST_F(CInterface, TellsWhetherANicCanRegisterDmaBufs) {
    EXPECT_EQ(rdmabuf_supports_dmabuf(pd_.native()), 0) << rdmabuf_last_error();
    ASSERT_EQ(softverbs_set_faults("reg_dmabuf_mr#1=EPROTONOSUPPORT"), 0);
    EXPECT_EQ(rdmabuf_supports_dmabuf(pd_.native()), -EOPNOTSUPP);
    EXPECT_THAT(rdmabuf_last_error(),
                HasSubstr("cannot register dma-bufs; use Linux 5.12 or newer"));
}

TEST_F(CInterface, FlushesWhereADriverMustAndSaysWhereItNeedNot) {
    const std::uint64_t address = fake::make(fake::Kind::device, page_);
    const int flushed = rdmabuf_flush(resolver_, pointer(address));
    EXPECT_GE(flushed, 0) << rdmabuf_last_error();
    EXPECT_EQ(fake::calls("cuFlushGPUDirectRDMAWrites"), flushed == 0 ? 1U : 0U);
    EXPECT_EQ(rdmabuf_flush(resolver_, &address), 1);
    // The program has added the same memory.
    rdmabuf_export made = RDMABUF_INIT(made);
    ASSERT_EQ(
        rdmabuf_export_range(resolver_, pointer(address), page_, RDMABUF_MAPPING_DEFAULT, &made),
        0);
    const UniqueFd descriptor(made.fd);
    rdmabuf_external_memory memory = RDMABUF_INIT(memory);
    memory.address = address;
    memory.length = page_;
    memory.fd = made.fd;
    memory.offset = made.offset;
    rdmabuf_external* external = nullptr;
    ASSERT_EQ(rdmabuf_external_add(resolver_, &memory, &external), 0) << rdmabuf_last_error();
    EXPECT_EQ(rdmabuf_flush(resolver_, pointer(address)), flushed) << rdmabuf_last_error();
    rdmabuf_external_remove(&external);
    char names[1][64];
    EXPECT_GE(rdmabuf_nearest(resolver_, pointer(address), names, 1), 1);
    EXPECT_STREQ(names[0], "soft0");
    fake::free(address);
}

} // namespace
} // namespace rdmabuf::testing
