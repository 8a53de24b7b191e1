// SPDX-License-Identifier: BSD-3-Clause
// Registrations on several threads. Whether registrations overlap is tested by holding them back
// until the expected number of them is in progress, not by time.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rdmabuf/chunked_region.hpp>

#include "four_nics_fixture.hpp"
#include "waiting.hpp"

#ifndef RDMABUF_SANITIZED // the run-time library of a sanitizer has its own pthread_create()
namespace {
std::atomic<bool> refuse_threads = false;
/// After the next creation of a thread, the next allocation of the creating thread fails once.
std::atomic<bool> refuse_memory = false;
thread_local bool refuse_allocation = false;
} // namespace

void* operator new(std::size_t size) {
    void* const memory = std::exchange(refuse_allocation, false) ? nullptr : std::malloc(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);
}

// Replaces pthread_create() of the C library in this program.
extern "C" int create_thread(pthread_t* thread, const pthread_attr_t* attributes,
                             void* (*start)(void*), void* argument) noexcept
    __asm__("pthread_create");
extern "C" int create_thread(pthread_t* thread, const pthread_attr_t* attributes,
                             void* (*start)(void*), void* argument) noexcept {
    static const auto original =
        reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
    refuse_allocation = refuse_memory.exchange(false);
    return refuse_threads ? EAGAIN : original(thread, attributes, start, argument);
}
#endif

namespace rdmabuf {
namespace {

using testing::error_of;
using testing::fails_with;
using testing::FourNics;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* function = "register_memory";

class ParallelRegistration : public FourNics {
  protected:
    /// Registers @p length bytes on all NICs.
    [[nodiscard]] Registration make(std::size_t length,
                                    const RegistrationOptions& options = {}) const {
        return register_memory(pds_, resolver_, base(), length, options);
    }
    /// Twelve chunks on each of the first @p nics NICs.
    [[nodiscard]] ChunkedRegion make_chunks(unsigned threads, std::size_t nics = 4) const {
        return {std::span(pds_).first(nics),
                resolver_,
                base(),
                12 * chunk,
                {.registration = {.threads = threads}, .chunk_size = chunk}};
    }
    static constexpr std::size_t chunk = 65536;
};

TEST_F(ParallelRegistration, FourNicsRegisterAtTheSameTimeByDefault) {
    const auto threads = observe(4);
    const Registration region = make(mebibyte);
    EXPECT_TRUE(threads->met());
    EXPECT_THAT(threads->ids(), SizeIs(4));
    EXPECT_TRUE(threads->ids().contains(std::this_thread::get_id()));
    EXPECT_EQ(exporter_->callers, this_thread_) << "the exporter is called by this thread only";
    ASSERT_EQ(region.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(region.protection_domain(i), pds_[i]) << "the order of the list";
        EXPECT_EQ(region.native(i)->context, pds_[i].native()->context);
    }
    EXPECT_EQ(exporter_->exports.size(), 1U);
    EXPECT_EQ(exporter_->releases, 1U);
}

TEST_F(ParallelRegistration, IsCompletedByAThreadThatIsBeingCancelled) {
    testing::before_each_call([](std::string_view verb) {
        if (verb == "ibv_reg_dmabuf_mr") {
            ::pthread_testcancel();
        }
    });
    for (const unsigned threads : {1U, 2U}) { // With two, it also waits for the other one.
        std::optional<Registration> region;
        std::thread thread([&] {
            ::pthread_cancel(::pthread_self());
            region = make(4096, {.threads = threads});
            ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
        });
        thread.join();
        EXPECT_TRUE(region) << threads;
    }
}

// The kernel module of AWS Neuron refuses a second attachment to a dma-buf with EPERM
// (ndmabuf_attach() in neuron_dmabuf.c of aws-neuron-driver).
TEST_F(ParallelRegistration, ADmaBufThatIsImportedOnceIsExportedForEachRegistration) {
    exporter_->allocation.single_import = true;
    const auto& made = testing::record().registrations;
    const auto descriptors = [&made] {
        std::set<int> all;
        for (const auto& registration : made) {
            all.insert(registration.fd);
        }
        return all.size();
    };
    static_cast<void>(make(mebibyte));
    EXPECT_THAT(made, SizeIs(4));
    EXPECT_EQ(descriptors(), 4U);
    testing::forget_calls();
    static_cast<void>(make_chunks(1, 2));
    EXPECT_THAT(made, SizeIs(24));
    EXPECT_EQ(descriptors(), 24U);
    EXPECT_EQ(exporter_->exports.size(), exporter_->releases);
    exporter_->on_export = [this] {
        if (exporter_->exports.size() % 2 == 0) {
            throw Error(EMFILE, "fakeExport");
        }
    };
    EXPECT_THAT(error_of([&] { static_cast<void>(make(mebibyte)); }),
                fails_with(function, EMFILE, "fakeExport"));
}

TEST_F(ParallelRegistration, ShortRangesAreRegisteredWithoutThreadsUnlessTheyAreAskedFor) {
    const auto serial = observe();
    static_cast<void>(make(mebibyte - 1));
    EXPECT_EQ(serial->ids(), this_thread_);
    const auto parallel = observe(4);
    static_cast<void>(make(4096, {.threads = 4}));
    EXPECT_TRUE(parallel->met());
}

TEST_F(ParallelRegistration, OneThreadRegistersInTheOrderOfTheList) {
    const auto threads = observe();
    const ChunkedRegion region = make_chunks(1);
    EXPECT_EQ(threads->ids(), this_thread_);
    const auto& made = testing::record().registrations;
    ASSERT_THAT(made, SizeIs(48));
    for (std::size_t i = 0; i < made.size(); ++i) {
        EXPECT_EQ(made[i].start, i % 12 * chunk);
    }
}

TEST_F(ParallelRegistration, OneChunkOnOneNicCreatesNoThread) {
    const auto threads = observe();
    static_cast<void>(register_memory(pds_[0], resolver_, base(), 4 * mebibyte, {.threads = 8}));
    EXPECT_EQ(threads->ids(), this_thread_);
}

TEST_F(ParallelRegistration, NoMoreThreadsRegisterThanTheOptionAllows) {
    const auto threads = observe(2);
    static_cast<void>(make_chunks(2));
    EXPECT_TRUE(threads->met());
    EXPECT_THAT(threads->ids(), SizeIs(2));
}

TEST_F(ParallelRegistration, EightThreadsRegisterChunksOnFourNics) {
    const auto threads = observe(8);
    const ChunkedRegion region = make_chunks(8);
    EXPECT_TRUE(threads->met());
    for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t c = 0; c < 12; ++c) {
            EXPECT_EQ(region.native(c, i)->context, pds_[i].native()->context);
            EXPECT_EQ(region.chunks(i)[c].address, base() + c * chunk);
            EXPECT_EQ(region.chunks(i)[c].lkey, region.native(c, i)->lkey);
        }
    }
}

TEST_F(ParallelRegistration, NoThreadIsLeftWhenTheCallReturns) {
    const auto running = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    const auto before = running();
    const Registration region = make(mebibyte, {.threads = 4});
    // Linux removes a thread from /proc shortly after pthread_join(3) has returned.
    EXPECT_TRUE(testing::eventually([&] { return running() == before; }));
}

#ifndef RDMABUF_SANITIZED
TEST_F(ParallelRegistration, CallingThreadRegistersAloneWhenNoThreadCanBeCreated) {
    refuse_threads = true;
    const auto threads = observe();
    const ChunkedRegion region = make_chunks(8);
    refuse_threads = false;
    EXPECT_EQ(threads->ids(), this_thread_);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 48U);
}

TEST_F(ParallelRegistration, ThreadsThatExistRegisterWhenThereIsNoMemoryForMore) {
    refuse_memory = true;
    const ChunkedRegion region = make_chunks(8);
    EXPECT_FALSE(refuse_memory) << "a thread was created, and an allocation failed";
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 48U);
}
#endif

TEST_F(ParallelRegistration, ThreadsHandleNoSignalsOfTheProgram) {
    std::atomic<unsigned> unblocked = 0;
    const auto main = std::this_thread::get_id();
    testing::before_each_call([&](const char* verb) {
        sigset_t blocked{};
        ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        if (std::string_view(verb) == "ibv_reg_dmabuf_mr" && std::this_thread::get_id() != main &&
            ::sigismember(&blocked, SIGUSR1) != 1) {
            ++unblocked;
        }
    });
    static_cast<void>(make_chunks(4));
    EXPECT_EQ(unblocked, 0U);
    sigset_t blocked{};
    ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(::sigismember(&blocked, SIGUSR1), 0) << "the mask of this thread is as before";
}

// Failures

/// Lets a device refuse ranges of more than @p bytes with EINVAL.
void limit_device(unsigned device, std::size_t bytes) {
    testing::change_device(
        [bytes](ibv_device_attr_ex& attributes) { attributes.orig_attr.max_mr_size = bytes; },
        device);
}

TEST_F(ParallelRegistration, FailureOnOneNicGivesEverythingBackAndNamesTheDeviceAndTheRange) {
    exporter_->allocation.kind = MemoryKind::system; // EINVAL changes no mapping
    limit_device(2, 65536);
    const auto descriptors = testing::open_descriptors();
    for (const unsigned threads : {1U, 2U, 4U}) {
        const auto error =
            error_of([&] { static_cast<void>(make(mebibyte, {.threads = threads})); });
        EXPECT_THAT(error, fails_with(function, EINVAL, "1048576 bytes at 0x200000000000",
                                      "ibv_reg_dmabuf_mr on soft2"));
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
        EXPECT_EQ(testing::open_descriptors(), descriptors);
    }
    EXPECT_EQ(exporter_->releases, 3U);
}

TEST_F(ParallelRegistration, ErrorsAndTrailsDoNotDependOnTheOrderInWhichThreadsRun) {
    // Two NICs refuse the memory of a device, which is then tried with another mapping.
    limit_device(1, 65536);
    limit_device(3, 65536);
    const auto trail_of = [&](unsigned threads) {
        Trail trail;
        const auto error = error_of(
            [&] { static_cast<void>(make(mebibyte, {.threads = threads, .trail = &trail})); });
        return to_string(trail) + error->what();
    };
    const std::string serial = trail_of(1);
    EXPECT_THAT(serial, HasSubstr("on soft1"));
    for (unsigned round = 0; round < 50; ++round) {
        ASSERT_EQ(trail_of(4), serial);
    }
}

TEST_F(ParallelRegistration, RegistersAllOfItOrNothingWhicheverCallFails) {
    const auto descriptors = testing::open_descriptors();
    for (unsigned n = 1; n <= 48; n += 3) {
        for (const unsigned threads : {1U, 4U}) {
            ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", n, EREMOTEIO), 0);
            EXPECT_THAT(error_of([&] { static_cast<void>(make_chunks(threads)); }),
                        fails_with("ChunkedRegion", EREMOTEIO, "ibv_reg_dmabuf_mr on soft"));
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
            EXPECT_EQ(testing::open_descriptors(), descriptors);
            EXPECT_EQ(exporter_->exports.size(), exporter_->releases);
        }
    }
}

TEST_F(ParallelRegistration, OtherNicsStopWhenNoPathIsLeft) {
    exporter_->allocation.kind = MemoryKind::system;
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, ENOMEM), 0);
    EXPECT_TRUE(error_of([&] { static_cast<void>(make_chunks(1)); }));
    EXPECT_THAT(testing::record().registrations, SizeIs(1));
}

TEST_F(ParallelRegistration, ExceptionInAThreadReachesTheCallerAndGivesEverythingBack) {
    std::atomic<unsigned> calls = 0;
    testing::before_each_call([&](const char* verb) {
        if (std::string_view(verb) == "ibv_reg_dmabuf_mr" && ++calls == 7) {
            throw std::bad_alloc();
        }
    });
    EXPECT_THROW(static_cast<void>(make_chunks(4)), Error) << "ENOMEM, from ChunkedRegion";
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    calls = 4;
    EXPECT_THROW(static_cast<void>(make(mebibyte, {.threads = 4})), std::bad_alloc);
    testing::before_each_call(nullptr);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    EXPECT_EQ(exporter_->releases, exporter_->exports.size());
}

// A chunked region on several NICs

TEST_F(ParallelRegistration, ChunksOfAllNicsAreThoseOfTheNicWithTheSmallestLimit) {
    limit_device(2, 2 * chunk + 100);
    const ChunkedRegion region(pds_, resolver_, base() + 4096 + 8, 8 * chunk,
                               {.registration = {.access = full_access}});
    EXPECT_EQ(region.size(), 4U);
    EXPECT_EQ(region.chunk_size(), 2 * chunk);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(region.protection_domain(i), pds_[i]);
        ASSERT_THAT(region.chunks(i), SizeIs(5));
        const RemoteChunks remote = region.remote(i);
        for (std::size_t c = 0; c < 5; ++c) {
            EXPECT_EQ(region.chunks(i)[c].address, region.chunks(0)[c].address);
            EXPECT_EQ(region.chunks(i)[c].lkey, region.native(c, i)->lkey);
            EXPECT_EQ(remote.chunks()[c].rkey, region.native(c, i)->rkey);
            EXPECT_EQ(region.native(c, i)->context, pds_[i].native()->context);
        }
        EXPECT_EQ(region.find(region.iova() + 3 * chunk, i)->lkey, region.chunks(i)[1].lkey);
    }
    EXPECT_EQ(exporter_->exports.size(), 1U + 5U) << "all NICs share the dma-buf of a chunk";
    limit_device(2, ~std::size_t{0});
}

TEST_F(ParallelRegistration, ChunkedRegionRefusesAnEmptyListAndMoreThanTheSmallestLimit) {
    limit_device(3, chunk);
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(ChunkedRegion(pds_, resolver_, base(), 4 * chunk,
                                                    {.chunk_size = 2 * chunk}));
                }),
                fails_with("ChunkedRegion", EINVAL, "soft3 registers at most 65536 at once"));
    EXPECT_THAT(error_of([&] {
                    static_cast<void>(ChunkedRegion(std::span<const ProtectionDomain>(), resolver_,
                                                    base(), 4 * chunk));
                }),
                fails_with("ChunkedRegion", EINVAL, "no protection domain"));
}

TEST_F(ParallelRegistration, TransfersAreSplitByTheMessageSizeOfEachNic) {
    ibv_port_attr port = testing::roce_port();
    port.max_msg_sz = 3 * 4096;
    testing::set_port(port, 1, 1);
    EXPECT_EQ(pds_[1].context().max_message_size(), 3U * 4096);
    const ChunkedRegion region(pds_, resolver_, base(), chunk,
                               {.registration = {.access = full_access}});
    const Transfer transfer{
        .local_address = region.iova(), .remote_address = region.iova(), .length = chunk};
    const auto first_piece = [&](std::size_t i) {
        const RemoteChunks remote = region.remote(i);
        TransferPiece piece;
        TransferSplitter splitter = region.split(remote, transfer, std::nullopt, i);
        EXPECT_TRUE(splitter.next(piece));
        EXPECT_EQ(piece.local.lkey, region.native(0, i)->lkey);
        return piece.local.length;
    };
    EXPECT_EQ(first_piece(0), chunk);
    EXPECT_EQ(first_piece(1), 3U * 4096);
}

TEST_F(ParallelRegistration, ClosedChunkedRegionHasNoChunksOnAnyNic) {
    ChunkedRegion region = make_chunks(4);
    region.close();
    EXPECT_TRUE(region.chunks(3).empty());
    EXPECT_EQ(region.find(base(), 3), nullptr);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
}

} // namespace
} // namespace rdmabuf
