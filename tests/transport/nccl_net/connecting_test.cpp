// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>

#include "fixture.hpp"

namespace nccl_net_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;

class NcclNetConnecting : public NcclNet {
  protected:
    NcclNetConnecting() { EXPECT_EQ(load(), Result::success); }
};

TEST_P(NcclNetConnecting, DoesNotWaitForTheOtherEnd) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    ASSERT_THAT(listener, NotNull());
    void* comm = &handle;
    EXPECT_EQ(net().accept(listener, comm), Result::success);
    EXPECT_THAT(comm, IsNull()) << "nobody has connected";
    for (int i = 0; i < 3; ++i) {
        comm = &handle;
        EXPECT_EQ(net().connect(0, handle, comm), Result::success);
        EXPECT_THAT(comm, IsNull()) << "nobody has accepted";
    }
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

TEST_P(NcclNetConnecting, ThatIsGivenUpLeavesNothing) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    void* comm = nullptr;
    ASSERT_EQ(net().connect(0, handle, comm), Result::success);
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

TEST_P(NcclNetConnecting, ToOneThatIsGoneFailsWithAReason) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    ASSERT_EQ(net().close_listen(listener), Result::success);
    Result result = Result::success;
    void* comm = nullptr;
    until([&] {
        result = net().connect(0, handle, comm);
        return result != Result::success;
    });
    EXPECT_EQ(result, Result::system_error);
    EXPECT_THAT(comm, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("W NET/rdmabuf : soft0: "));
}

TEST_P(NcclNetConnecting, ByBytesThatAreNoHandleFails) {
    Handle handle{};
    handle.fill(std::byte{0xff});
    void* comm = nullptr;
    EXPECT_EQ(net().connect(0, handle, comm), Result::system_error);
    EXPECT_THAT(comm, IsNull());
    EXPECT_THAT(take_log(), HasSubstr("these bytes are not the handle of a listener"));
}

TEST_P(NcclNetConnecting, ToADeviceThatThereIsNotFails) {
    Handle handle{};
    void* object = nullptr;
    EXPECT_EQ(net().listen(7, handle, object), Result::internal_error);
    EXPECT_EQ(net().connect(-1, handle, object), Result::system_error);
    EXPECT_THAT(object, IsNull());
}

TEST_P(NcclNetConnecting, GoesOnForManyAtOnce) {
    struct One {
        Handle handle{};
        void* listener = nullptr;
        void* send = nullptr;
        void* receive = nullptr;
    };
    std::vector<One> all(32);
    for (One& one : all) {
        ASSERT_EQ(net().listen(0, one.handle, one.listener), Result::success);
    }
    until([&] {
        for (One& one : all) {
            if (one.send == nullptr) {
                EXPECT_EQ(net().connect(0, one.handle, one.send), Result::success);
            }
            if (one.receive == nullptr) {
                EXPECT_EQ(net().accept(one.listener, one.receive), Result::success);
            }
        }
        return std::all_of(all.begin(), all.end(), [](const One& one) {
            return one.send != nullptr && one.receive != nullptr;
        });
    });
    // Each leads to its own listener.
    const auto from = memory(all[0].send, all.size());
    const auto to = memory(all[0].receive, all.size());
    std::vector<Ticket> received;
    for (std::size_t i = 0; i < all.size(); ++i) {
        *from->data(i) = static_cast<std::byte>(i + 1);
        received.push_back(receive(all[i].receive, *to, i, 1, 0));
        static_cast<void>(send(all[i].send, *from, i, 1, 0));
    }
    for (const Ticket& ticket : received) {
        EXPECT_THAT(finish(ticket), ::testing::ElementsAre(1));
    }
    EXPECT_TRUE(std::ranges::equal(from->bytes(0, all.size()), to->bytes(0, all.size())));
    for (const One& one : all) {
        EXPECT_EQ(net().close_listen(one.listener), Result::success);
        EXPECT_EQ(net().close_send(one.send), Result::success);
        EXPECT_EQ(net().close_receive(one.receive), Result::success);
    }
}

TEST_P(NcclNetConnecting, GivesOneListenerSeveralPeers) {
    Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net().listen(0, handle, listener), Result::success);
    for (int peer = 0; peer < 3; ++peer) {
        Handle copy = handle;
        void* sending = nullptr;
        void* receiving = nullptr;
        until([&] {
            if (sending == nullptr) {
                EXPECT_EQ(net().connect(0, copy, sending), Result::success);
            }
            if (receiving == nullptr) {
                EXPECT_EQ(net().accept(listener, receiving), Result::success);
            }
            return sending != nullptr && receiving != nullptr;
        });
        EXPECT_EQ(net().close_send(sending), Result::success);
        EXPECT_EQ(net().close_receive(receiving), Result::success);
    }
    EXPECT_EQ(net().close_listen(listener), Result::success);
}

TEST_P(NcclNetConnecting, OfSeveralCommunicatorsOfNcclSharesTheDevices) {
    // Version 12 is told of each; version 8 of the first only.
    if (GetParam() == 12) {
        const Pair pair = connect();
        ASSERT_EQ(net().init(), Result::success);
        net().finalize();
        const auto memory_of_it = memory(pair.send, 1);
        EXPECT_THAT(memory_of_it->handle(), NotNull()) << "the first one goes on";
    }
    EXPECT_EQ(net().devices(), 1);
}

INSTANTIATE_TEST_SUITE_P(Version, NcclNetConnecting, ::testing::Values(8, 12));

} // namespace
} // namespace nccl_net_test
