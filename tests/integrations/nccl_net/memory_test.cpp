// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

class NcclNetMemory : public NcclNet {
  protected:
    NcclNetMemory() {
        EXPECT_EQ(load(), Result::success);
        pair_ = connect();
    }

    [[nodiscard]] static std::uint64_t number(const void* address) {
        return reinterpret_cast<std::uintptr_t>(address);
    }

    Pair pair_;
};

TEST_F(NcclNetMemory, OfTheHostNeedsNoFlush) {
    const auto to = memory(pair_.receive, 64);
    void* request = &pair_;
    EXPECT_EQ(net().iflush(pair_.receive, {to->data()}, {64}, {to->handle()}, request),
              Result::success);
    EXPECT_THAT(request, IsNull());
}

TEST_F(NcclNetMemory, ThatWasNotWrittenNeedsNoFlush) {
    const auto to = memory(pair_.receive, 4096, true);
    void* request = &pair_;
    EXPECT_EQ(net().iflush(pair_.receive, {to->data(), to->data(64)}, {0, 0},
                           {to->handle(), to->handle()}, request),
              Result::success);
    EXPECT_THAT(request, IsNull());
}

TEST_F(NcclNetMemory, OfADeviceIsFlushedByReadingItBack) {
    const auto first = memory(pair_.receive, 8192, true);
    const auto second = memory(pair_.receive, 8192, true);
    const auto host = memory(pair_.receive, 8192);
    void* request = nullptr;
    forget_calls();
    ASSERT_EQ(net().iflush(
                  pair_.receive, {first->data(), host->data(), first->data(4096), second->data(9)},
                  {1, 8192, 4096, 8000},
                  {first->handle(), host->handle(), first->handle(), second->handle()}, request),
              Result::success);
    ASSERT_THAT(request, NotNull());
    const Ticket flushed = follow(request, 4);
    finish(flushed);
    EXPECT_EQ(flushed->result, Result::success);
    std::vector<std::uint64_t> read;
    for (const Send& sent : record().sends) {
        if (sent.request.opcode == IBV_WR_RDMA_READ) {
            read.push_back(sent.request.wr.rdma.remote_addr);
        }
    }
    // Once each memory that is a device's: what was written before the last is there as well.
    EXPECT_THAT(read, ElementsAre(number(first->data(4096)), number(second->data(9))));
}

TEST_F(NcclNetMemory, IsFlushedManyTimesAtOnce) {
    const auto to = memory(pair_.receive, 4096, true);
    std::vector<Ticket> flushes;
    for (int i = 0; i < 200; ++i) {
        void* request = nullptr;
        ASSERT_EQ(net().iflush(pair_.receive, {to->data()}, {64}, {to->handle()}, request),
                  Result::success);
        ASSERT_THAT(request, NotNull()) << "NCCL would take it for done: " << i;
        flushes.push_back(follow(request));
    }
    for (const Ticket& flush : flushes) {
        finish(flush);
        EXPECT_EQ(flush->result, Result::success);
    }
}

TEST_F(NcclNetMemory, IsAPartOfADmaBuf) {
    const std::size_t page = page_size();
    const auto fd = make_dmabuf(8 * page);
    void* const mapped = ::mmap(nullptr, 8 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    auto* const all = static_cast<std::byte*>(mapped);
    // What the driver of a GPU calls it, which is no address of the CPU's.
    void* const pointer = reinterpret_cast<void*>(std::uintptr_t{0x7f00'0000'0000});
    void* to = nullptr;
    ASSERT_EQ(net().register_dmabuf(pair_.receive, pointer, 2 * page, 3 * page, fd.get(), to),
              Result::success);
    const auto from = memory(pair_.send, page);
    fill(from->bytes(0, page), 3);
    void* request = nullptr;
    ASSERT_EQ(net().irecv(pair_.receive, {static_cast<std::byte*>(pointer) + page + 8}, {page - 8},
                          {0}, {to}, request),
              Result::success);
    const Ticket received = follow(request);
    static_cast<void>(send(pair_.send, *from, 0, 100, 0));
    EXPECT_THAT(finish(received), ElementsAre(100));
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, 100), std::span(all + 4 * page + 8, 100)));
    EXPECT_EQ(net().deregister_memory(pair_.receive, to), Result::success);
    ::munmap(mapped, 8 * page);
}

TEST_F(NcclNetMemory, OfADmaBufLiesWhereItsAddressDoes) {
    const auto fd = make_dmabuf(8192);
    void* to = nullptr;
    EXPECT_EQ(net().register_dmabuf(pair_.receive, reinterpret_cast<void*>(0x100010), 4096, 0,
                                    fd.get(), to),
              Result::invalid_usage);
    EXPECT_THAT(to, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("different offsets in their pages"));
}

TEST_F(NcclNetMemory, OfAGpuIsNotTakenWithoutAReason) {
    const auto host = memory(pair_.send, 4096);
    void* handle = nullptr;
    EXPECT_EQ(net().register_memory(pair_.send, host->data(), 4096, abi::pointer_cuda, handle),
              Result::invalid_usage);
    EXPECT_THAT(handle, IsNull());
    EXPECT_THAT(take_log(), AllOf(HasSubstr("pointers to GPU memory cannot be registered"),
                                  HasSubstr("cuda"), HasSubstr("nvidia_peermem")));
}

TEST_F(NcclNetMemory, ThatCannotBeRegisteredFailsWithAReason) {
    const auto fd = make_dmabuf(4096);
    void* handle = nullptr;
    fail_next("reg_dmabuf_mr", ENOMEM);
    EXPECT_EQ(net().register_dmabuf(pair_.send, reinterpret_cast<void*>(0x100000), 4096, 0,
                                    fd.get(), handle),
              Result::system_error);
    EXPECT_THAT(handle, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: ibv_reg_dmabuf_mr"));
    EXPECT_EQ(net().register_memory(pair_.send, nullptr, 0, abi::pointer_host, handle),
              Result::system_error);
    EXPECT_THAT(handle, IsNull());
}

TEST_F(NcclNetMemory, IsValidForOtherConnectionsOfTheNcclCommunicator) {
    // NCCL may register memory for a connection that it then closes (regIsGlobal).
    Handle handle{};
    void* listener = nullptr;
    void* sending = nullptr;
    void* receiving = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    until([&] {
        if (sending == nullptr) {
            EXPECT_EQ(net().connect(0, handle, sending), Result::success);
        }
        if (receiving == nullptr) {
            EXPECT_EQ(net().accept(listener, receiving), Result::success);
        }
        return sending != nullptr && receiving != nullptr;
    });
    const auto from = memory(sending, 4096);
    const auto to = memory(receiving, 4096, true);
    EXPECT_EQ(net().close_send(sending), Result::success);
    EXPECT_EQ(net().close_receive(receiving), Result::success);
    EXPECT_EQ(net().close_listen(listener), Result::success);
    fill(from->bytes(0, 4096), 8);
    const Ticket received = receive(pair_.receive, *to, 0, 4096, 0);
    static_cast<void>(send(pair_.send, *from, 0, 4096, 0));
    EXPECT_THAT(finish(received), ElementsAre(4096));
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, 4096), to->bytes(0, 4096)));
}

TEST_F(NcclNetMemory, IsRegisteredByAThreadWhileAnotherSends) {
    const auto from = memory(pair_.send, 4096);
    const auto to = memory(pair_.receive, 4096);
    std::atomic<bool> stop = false;
    std::thread registering([&] {
        while (!stop) {
            const auto host = memory(pair_.send, 4096);
            const auto device = memory(pair_.receive, 4096, true);
        }
    });
    for (int i = 0; i < 200; ++i) {
        const Ticket received = receive(pair_.receive, *to, 0, 4096, 0);
        static_cast<void>(send(pair_.send, *from, 0, 4096, 0));
        EXPECT_THAT(finish(received), ElementsAre(4096));
    }
    stop = true;
    registering.join();
}

TEST_F(NcclNetMemory, IsNotKnownAfterItsDeregistration) {
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    {
        const auto host = memory(pair_.send, 4096);
        const auto device = memory(pair_.send, 4096, true);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 2);
    }
    // NCCL frees it next, and the address may be of something else then.
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
}

// When NCCL aborts a communicator, it deregisters memory before it closes the connections.
TEST_F(NcclNetMemory, IsDeregisteredWhenTheRequestsInFlightHaveEnded) {
    constexpr std::size_t size = 65536;
    std::vector<std::byte> bytes(2 * size);
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    // What a thread leaves behind keeps the library loaded for as long as the thread lives.
    std::thread([&] {
        void* from = nullptr;
        void* to = nullptr;
        ASSERT_EQ(net().register_memory(pair_.send, bytes.data(), size, abi::pointer_host, from),
                  Result::success);
        ASSERT_EQ(
            net().register_memory(pair_.receive, bytes.data() + size, size, abi::pointer_host, to),
            Result::success);
        void* sent = nullptr;
        void* received = nullptr;
        ASSERT_EQ(net().isend(pair_.send, bytes.data(), size, 1, from, sent), Result::success);
        ASSERT_EQ(net().irecv(pair_.receive, {bytes.data() + size}, {size}, {2}, {to}, received),
                  Result::success);
        EXPECT_EQ(net().deregister_memory(pair_.send, from), Result::success);
        EXPECT_EQ(net().deregister_memory(pair_.receive, to), Result::success);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 2);
        close_send(pair_);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
        const Ticket ended = follow(received);
        finish(ended);
        EXPECT_EQ(ended->result, Result::system_error);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
    }).join();
}

using NcclNetCuda = NcclNet;

TEST_F(NcclNetCuda, MemoryIsNotRegisteredAfterItsDeregistration) {
    if (std::getenv("NCCL_NET_FAKE_CUDA") == nullptr) {
        GTEST_SKIP() << "the fake CUDA driver is not used: NCCL_NET_FAKE_CUDA is not set";
    }
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    ASSERT_THAT(driver, NotNull()) << ::dlerror();
    const auto call = [driver](const char* name, auto... arguments) {
        return reinterpret_cast<int (*)(decltype(arguments)...)>(::dlsym(driver, name))(
            arguments...);
    };
    void* context = nullptr;
    ASSERT_EQ(call("cuInit", 0U), 0);
    ASSERT_EQ(call("cuDevicePrimaryCtxRetain", &context, 0), 0);
    ASSERT_EQ(load(), Result::success);
    const Pair pair = connect();
    constexpr std::size_t size = 65536;
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    const auto register_and_deregister = [&] {
        unsigned long long address = 0;
        ASSERT_EQ(call("cuCtxPushCurrent_v2", context), 0);
        ASSERT_EQ(call("cuMemAlloc_v2", &address, size), 0);
        void* const data = reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr)
        std::array<void*, 2> handles{};
        for (void*& handle : handles) {
            ASSERT_EQ(net().register_memory(pair.send, data, size, abi::pointer_cuda, handle),
                      Result::success)
                << take_log();
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
        }
        for (void* const handle : handles) {
            EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
            EXPECT_EQ(net().deregister_memory(pair.send, handle), Result::success);
        }
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
        EXPECT_EQ(call("cuMemFree_v2", address), 0);
    };
    for (int i = 0; i < 3; ++i) {
        std::thread(register_and_deregister).join();
    }
}

} // namespace
} // namespace nccl_net_test
