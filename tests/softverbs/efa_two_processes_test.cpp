// SPDX-License-Identifier: BSD-3-Clause
// SRD queue pairs of two processes. Each end is a child of the test process, which itself calls no
// verbs.
#include <endian.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "checked_calls.hpp"
#include "child_process.hpp"
#include "efa_test.hpp"
#include "temporary_directory.hpp"

namespace softverbs_test {
namespace {

/// One end of the connection. It exists in a child process.
class Process : public SrdEnd, public Conversation {
  public:
    explicit Process(int socket) : Conversation(socket) {
        ibv_device** const list = ibv_get_device_list(nullptr);
        context_.reset(ibv_open_device(list[0]));
        ibv_free_device_list(list);
        pd_.reset(ibv_alloc_pd(context_.get()));
        open(context_.get(), pd_.get(), std::size_t{2} << 20U);
        SrdPeer own{{}, qp->qp_num, mr->rkey, address()};
        EXPECT_EQ(ibv_query_gid(context_.get(), 1, 0, &own.gid), 0);
        EXPECT_EQ(start_srd(qp.get()), 0);
        tell(own);
        peer = hear<SrdPeer>();
        ah.reset(create_ah_to(pd_.get(), peer.gid));
        meet();
    }
    ~Process() {
        ah.reset();
        close();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    SrdPeer peer{};
    UniqueAh ah;

  private:
    UniqueContext context_;
    UniquePd pd_;
};

class EfaTwoProcesses : public testing::Test {
  protected:
    using Role = std::function<void(Process&)>;
    void run(const Role& one, const Role& other, int other_signal = 0) {
        const auto run_role = [&](const Role& role) {
            return [&](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                ::setenv("SOFTVERBS_PROFILE", "efa", 1);
                Process process(socket);
                role(process);
                return 0;
            };
        };
        const auto children = fork_pair(2 * time_limit, run_role(one), run_role(other));
        expect_success(children[0]);
        if (other_signal == 0) {
            expect_success(children[1]);
        } else {
            const int status = status_of_child(children[1]);
            EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == other_signal);
        }
    }

  private:
    TemporaryDirectory directory_;
};

TEST_F(EfaTwoProcesses, ExchangeMessagesOutOfOrder) {
    constexpr std::uint32_t count = 48;
    run(
        [](Process& sender) {
            for (std::uint32_t i = 0; i < count; ++i) {
                std::memset(sender.memory.data() + std::size_t{i} * 1024, static_cast<int>(i + 1),
                            1024);
            }
            sender.meet();
            EXPECT_EQ(sender.send_batch(count, 1024, sender.ah.get(), sender.peer), 0);
            std::uint64_t sum = 0;
            for (std::uint32_t i = 0; i < count; ++i) {
                ibv_wc wc{};
                while (ibv_poll_cq(sender.native_cq(), 1, &wc) == 0) {
                }
                EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
                sum += wc.wr_id;
            }
            EXPECT_EQ(sum, count * (count - 1) / 2);
            sender.meet();
        },
        [](Process& receiver) {
            for (std::uint32_t i = 0; i < count; ++i) {
                EXPECT_EQ(receiver.receive(i, receiver.sge(std::size_t{i} * 1024, 1024)), 0);
            }
            receiver.meet();
            std::vector<std::uint32_t> order;
            for (std::uint32_t i = 0; i < count; ++i) {
                const ibv_wc wc = receiver.expect(i);
                EXPECT_EQ(wc.byte_len, 1024U);
                EXPECT_EQ(wc.src_qp, receiver.peer.qp_number);
                const auto bytes = receiver.memory.begin() + std::ptrdiff_t{i} * 1024;
                const std::uint32_t sent = be32toh(wc.imm_data);
                EXPECT_EQ(std::count(bytes, bytes + 1024, static_cast<std::byte>(sent + 1)), 1024);
                order.push_back(sent);
            }
            EXPECT_FALSE(std::ranges::is_sorted(order));
            std::ranges::sort(order);
            EXPECT_EQ(std::ranges::adjacent_find(order), order.end());
            receiver.meet();
        });
}

TEST_F(EfaTwoProcesses, WriteAndReadMemoryOfAProcessThatCallsNoVerbs) {
    constexpr std::uint32_t length = 900'000;
    constexpr std::size_t half = std::size_t{1} << 20U;
    run(
        [](Process& initiator) {
            for (std::size_t i = 0; i < length; ++i) {
                initiator.memory[i] = static_cast<std::byte>(i * 5 + i / 257);
            }
            const ibv_sge source = initiator.sge(0, length);
            EXPECT_EQ(initiator.write(1, initiator.ah.get(), initiator.peer, source, 64), 0);
            initiator.expect(1);
            EXPECT_EQ(initiator.read(2, initiator.ah.get(), initiator.peer,
                                     initiator.sge(half, length), 64),
                      0);
            initiator.expect(2);
            EXPECT_EQ(std::memcmp(initiator.memory.data(), initiator.memory.data() + half, length),
                      0);
            initiator.meet();
        },
        [](Process& target) {
            target.meet();
            for (std::size_t i = 0; i < length; ++i) {
                ASSERT_EQ(target.memory[i + 64], static_cast<std::byte>(i * 5 + i / 257)) << i;
            }
        });
}

TEST_F(EfaTwoProcesses, PeerThatIsKilledFailsItsRequestsOnly) {
    run(
        [](Process& survivor) {
            // There is no receive request, so this message waits.
            EXPECT_EQ(survivor.send(1, survivor.ah.get(), survivor.peer, survivor.sge(0, 8)), 0);
            survivor.meet();
            EXPECT_EQ(survivor.expect(1, IBV_WC_REM_INV_RD_REQ_ERR).vendor_err, 9U);
            const SrdPeer self{survivor.peer.gid, survivor.qp->qp_num, 0, 0};
            EXPECT_EQ(survivor.receive(2, survivor.sge(64, 8)), 0);
            EXPECT_EQ(survivor.send(3, survivor.ah.get(), self, survivor.sge(0, 8)), 0);
            std::uint64_t ids = 0;
            for (int i = 0; i < 2; ++i) {
                ibv_wc wc{};
                while (ibv_poll_cq(survivor.native_cq(), 1, &wc) == 0) {
                }
                EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
                ids += wc.wr_id;
            }
            EXPECT_EQ(ids, 5U);
        },
        [](Process& victim) {
            victim.meet();
            ::raise(SIGKILL);
        },
        SIGKILL);
}

} // namespace
} // namespace softverbs_test
