// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <latch>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using namespace rdmabuf::testing;
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
                  pair_.receive, {first->data(), second->data(9), host->data(), first->data(4096)},
                  {1, 8000, 8192, 0},
                  {first->handle(), second->handle(), host->handle(), first->handle()}, request),
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
    EXPECT_THAT(read, ElementsAre(number(second->data(9))))
        << "a read behind all writes of the device makes them visible";
}

TEST_F(NcclNetMemory, IsFlushedManyTimesAtOnce) {
    const auto to = memory(pair_.receive, 4096, true);
    std::vector<Ticket> flushes;
    // As many as NCCL has receives in flight.
    for (int i = 0; i < 32; ++i) {
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

TEST_F(NcclNetMemory, OfTheHostIsTakenAsMemoryOfAGpu) {
    // NCCL registers pinned host memory of a user as NCCL_PTR_CUDA.
    std::vector<std::byte> pinned(4096);
    void* handle = nullptr;
    EXPECT_EQ(net().register_memory(pair_.receive, pinned.data(), 4096, abi::pointer_cuda, handle),
              Result::success)
        << take_log();
    void* request = &pair_;
    EXPECT_EQ(net().iflush(pair_.receive, {pinned.data()}, {4096}, {handle}, request),
              Result::success);
    EXPECT_THAT(request, IsNull()) << "it is not in a GPU";
    EXPECT_EQ(net().deregister_memory(pair_.receive, handle), Result::success);
}

TEST_F(NcclNetMemory, ThatCannotBeRegisteredFailsWithTheResultOfItsErrnoAndAReason) {
    const auto fd = make_dmabuf(4096);
    void* handle = nullptr;
    for (const auto& [error, result] :
         {std::pair{ENOMEM, Result::system_error}, std::pair{EINVAL, Result::invalid_usage},
          std::pair{ECONNREFUSED, Result::remote_error},
          std::pair{ECONNRESET, Result::remote_error},
          std::pair{EHOSTUNREACH, Result::remote_error},
          std::pair{ENETUNREACH, Result::remote_error},
          std::pair{ETIMEDOUT, Result::remote_error}}) {
        SCOPED_TRACE(error);
        fail_next("reg_dmabuf_mr", error);
        EXPECT_EQ(net().register_dmabuf(pair_.send, reinterpret_cast<void*>(0x100000), 4096, 0,
                                        fd.get(), handle),
                  result);
        EXPECT_THAT(handle, IsNull());
        EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: ibv_reg_dmabuf_mr"));
    }
    EXPECT_EQ(net().register_memory(pair_.send, nullptr, 0, abi::pointer_host, handle),
              Result::invalid_usage);
    EXPECT_THAT(handle, IsNull());
}

TEST_F(NcclNetMemory, InMoreRegionsThanAReceiveCanNameIsRefused) {
    close(pair_);
    constexpr std::size_t largest = 1 << 20;
    change_device([](ibv_device_attr_ex& device) { device.orig_attr.max_mr_size = largest; });
    const Pair pair = connect();
    std::vector<std::byte> data(9 * largest);
    void* handle = nullptr;
    EXPECT_EQ(net().register_memory(pair.send, data.data(), data.size(), abi::pointer_host, handle),
              Result::system_error);
    EXPECT_THAT(handle, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("in more than 8 regions: register it in parts"));
}

TEST_F(NcclNetMemory, IsValidForOtherConnectionsOfTheNcclCommunicator) {
    // NCCL may register memory for a connection that it then closes (regIsGlobal).
    const Pair closed = connect();
    const auto from = memory(closed.send, 4096);
    const auto to = memory(closed.receive, 4096, true);
    close(closed);
    fill(from->bytes(0, 4096), 8);
    const Ticket received = receive(pair_.receive, *to, 0, 4096, 0);
    static_cast<void>(send(pair_.send, *from, 0, 4096, 0));
    EXPECT_THAT(finish(received), ElementsAre(4096));
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, 4096), to->bytes(0, 4096)));
}

// NCCL registers the buffer that its connections share once for each connection.
TEST_F(NcclNetMemory, IsRegisteredOnceForAllConnections) {
    const Pair other = connect();
    const std::size_t page = page_size();
    std::vector<std::byte> data(4 * page);
    const auto fd = make_dmabuf(4 * page);
    void* const address = reinterpret_cast<void*>(std::uintptr_t{0x7f00'0000'0000});
    const auto by_address = [&](void* comm, std::size_t size, void*& handle) {
        return net().register_memory(comm, data.data(), size, abi::pointer_host, handle);
    };
    const auto by_dmabuf = [&](void* comm, std::size_t offset, void*& handle) {
        return net().register_dmabuf(comm, address, page, offset, fd.get(), handle);
    };
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    const std::array comms{pair_.send, pair_.receive, other.send, other.receive};
    std::vector<void*> handles;
    for (void* const comm : comms) {
        ASSERT_EQ(by_address(comm, 2 * page, handles.emplace_back()), Result::success);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
    }
    ASSERT_EQ(by_address(pair_.send, page, handles.emplace_back()), Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 2) << "of another length";
    for (void* const comm : comms) {
        ASSERT_EQ(by_dmabuf(comm, page, handles.emplace_back()), Result::success);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 3);
    }
    ASSERT_EQ(by_dmabuf(pair_.send, 2 * page, handles.emplace_back()), Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 4) << "of another part of the dma-buf";
    const std::size_t last = handles.size() - 1;
    for (const auto& [first, registrations] :
         {std::pair{last, 3U}, std::pair{last - 4, 2U}, std::pair{comms.size(), 1U},
          std::pair{std::size_t{0}, 0U}}) {
        while (handles.size() > first) {
            EXPECT_GT(softverbs_live(SOFTVERBS_MR), before + registrations);
            EXPECT_EQ(net().deregister_memory(pair_.send, handles.back()), Result::success);
            handles.pop_back();
        }
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + registrations);
    }
}

TEST_F(NcclNetMemory, IsRegisteredWithoutDelayingAnotherThread) {
    Transfer transfer(net(), pair_, {}, true);
    std::latch registering(2);
    std::latch finished(1);
    before_each_call([&](const char* verb) {
        if (std::string_view(verb).starts_with("ibv_reg_")) {
            registering.count_down();
            finished.wait();
        }
    });
    std::array<std::thread, 2> threads;
    for (const bool dmabuf : {false, true}) {
        threads.at(dmabuf ? 1 : 0) = std::thread([&, dmabuf] {
            const auto registered = memory(dmabuf ? pair_.send : pair_.receive, 4096, dmabuf);
        });
    }
    registering.wait();
    run(transfer);
    finished.count_down();
    for (std::thread& thread : threads) {
        thread.join();
    }
    forget_calls();
}

// When NCCL aborts a communicator, it deregisters memory before it closes the connections.
TEST_F(NcclNetMemory, IsDeregisteredWhenTheRequestsInFlightHaveEnded) {
    constexpr std::size_t size = 65536;
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    const auto from = memory(pair_.send, size);
    const auto to = memory(pair_.receive, size);
    void* sent = nullptr;
    void* received = nullptr;
    for (const int tag : {1, 2}) {
        ASSERT_EQ(net().irecv(pair_.receive, {to->data()}, {size}, {tag}, {to->handle()}, received),
                  Result::success);
    }
    until([&] {
        EXPECT_EQ(net().isend(pair_.send, from->data(), size, 1, from->handle(), sent),
                  Result::success);
        return sent != nullptr;
    });
    from->deregister();
    to->deregister();
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 2);
    // NCCL may have freed the memory, and allocated other memory at its address.
    void* anew = nullptr;
    ASSERT_EQ(net().register_memory(pair_.receive, to->data(), size, abi::pointer_host, anew),
              Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 3);
    EXPECT_EQ(net().deregister_memory(pair_.receive, anew), Result::success);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 2);
    close_send(pair_);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
    const Ticket ended = follow(received);
    finish(ended);
    EXPECT_EQ(ended->result, Result::remote_error);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
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
    // As with NVIDIA's kernel module, whose dma-bufs cannot be mapped with mmap(2).
    ASSERT_EQ(softverbs_set_faults("dmabuf=unmappable"), 0);
    ASSERT_EQ(load(), Result::success);
    const Pair pair = connect();
    constexpr std::size_t size = 65536;
    const std::size_t before = softverbs_live(SOFTVERBS_MR);
    const auto register_and_deregister = [&] {
        unsigned long long address = 0;
        ASSERT_EQ(call("cuCtxPushCurrent_v2", context), 0);
        ASSERT_EQ(call("cuMemAlloc_v2", &address, size), 0);
        void* const data = reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr)
        void* handle = nullptr;
        ASSERT_EQ(net().register_memory(pair.send, data, size, abi::pointer_cuda, handle),
                  Result::success)
            << take_log();
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before + 1);
        EXPECT_EQ(net().deregister_memory(pair.send, handle), Result::success);
        EXPECT_EQ(softverbs_live(SOFTVERBS_MR), before);
        EXPECT_EQ(call("cuMemFree_v2", address), 0);
    };
    for (int i = 0; i < 3; ++i) {
        std::thread(register_and_deregister).join();
    }
}

} // namespace
} // namespace nccl_net_test
