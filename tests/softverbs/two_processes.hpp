// SPDX-License-Identifier: BSD-3-Clause
// Support for tests with two processes. Each end is a child of the test process, which itself calls
// no verbs.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "checked_calls.hpp"
#include "child_process.hpp"
#include "pair_test.hpp"
#include "temporary_directory.hpp"

namespace softverbs_test {

inline constexpr std::uint32_t one_mib = 1U << 20U;
inline constexpr std::size_t memory_size = std::size_t{8} << 20U;
inline constexpr std::size_t half = memory_size / 2;
inline constexpr std::uint32_t qkey = 0x1234;
inline constexpr int no_windows = full_access & ~IBV_ACCESS_MW_BIND;

struct Address {
    std::uint16_t lid;
    std::uint32_t qp_number;
    std::uint32_t rkey;
    std::uint64_t memory;
};

inline ibv_context* open_first_device() {
    ibv_device** const list = made(ibv_get_device_list(nullptr), "ibv_get_device_list");
    ibv_context* const context = made(ibv_open_device(made(list[0], "device")), "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

enum class Memory { host, memfd, device };

/// Returns true if all threads of a process are in @p state, see state_of_thread().
inline bool all_threads_are(char state, pid_t process) {
    const std::filesystem::directory_iterator tasks("/proc/" + std::to_string(process) + "/task");
    return std::all_of(begin(tasks), end(tasks), [state](const auto& task) {
        const char now = rdmabuf::testing::state_of_thread(std::stoi(task.path().filename()));
        return now == state || now == '\0';
    });
}

/// Stops @p process, and waits until all its threads are stopped.
inline void stop(pid_t process) {
    ASSERT_EQ(::kill(process, SIGSTOP), 0);
    EXPECT_TRUE(eventually([process] { return all_threads_are('T', process); }));
}

/// Connects @p qp to the queue pair of @p peer. Returns the attributes of the path to it.
inline ibv_ah_attr connect_queue_pair(ibv_qp* qp, const Address& peer, std::uint8_t timeout,
                                      std::uint8_t retries) {
    const bool rc = qp->qp_type == IBV_QPT_RC;
    const bool ud = qp->qp_type == IBV_QPT_UD;
    ibv_qp_attr attr{};
    attr.port_num = 1;
    attr.qkey = qkey;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | (rc ? IBV_ACCESS_REMOTE_ATOMIC : 0);
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.qp_number;
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.dlid = peer.lid;
    attr.ah_attr.port_num = 1;
    attr.timeout = timeout;
    attr.retry_cnt = retries;
    attr.rnr_retry = 7;
    attr.qp_state = IBV_QPS_INIT;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
         "INIT");
    attr.qp_state = IBV_QPS_RTR;
    const int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | (ud ? 0 : path) |
                           (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)),
         "RTR");
    attr.qp_state = IBV_QPS_RTS;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN |
                           (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                     IBV_QP_MAX_QP_RD_ATOMIC
                               : 0)),
         "RTS");
    return attr.ah_attr;
}

/// One end of the connection. It exists in a child process.
class End : public Conversation {
  public:
    End(int socket, ibv_qp_type type, Memory kind, std::uint8_t timeout, std::uint8_t retries)
        : Conversation(socket),
          context(open_first_device()),
          pd(made(ibv_alloc_pd(context), "ibv_alloc_pd")),
          cq(made(ibv_create_cq(context, 1024, nullptr, nullptr, 0), "ibv_create_cq")) {
        register_memory(kind);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.cap = {128, 128, 1, 1, 0};
        init.qp_type = type;
        qp = made(ibv_create_qp(pd, &init), "ibv_create_qp");
        ibv_port_attr port{};
        done(ibv_query_port(context, 1, &port), "ibv_query_port");
        tell(Address{port.lid, qp->qp_num, mr->rkey, base});
        peer = hear<Address>();
        ibv_ah_attr path = connect_queue_pair(qp, peer, timeout, retries);
        if (type == IBV_QPT_UD) {
            ah = made(ibv_create_ah(pd, &path), "ibv_create_ah");
        }
        meet();
    }

    void receive(std::uint64_t id, std::size_t offset, std::uint32_t length) const {
        ibv_sge sge{base + offset, length, mr->lkey};
        ibv_recv_wr wr{id, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        done(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
    }
    /// @param there  offset in the memory of the other end
    void post(ibv_wr_opcode opcode, std::uint64_t id, std::size_t offset, std::uint32_t length,
              std::size_t there = 0) const {
        ibv_sge sge{base + offset, length, mr->lkey};
        ibv_send_wr wr{};
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        if (qp->qp_type == IBV_QPT_UD) {
            wr.wr.ud = {ah, peer.qp_number, qkey};
        } else if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
            wr.wr.atomic = {peer.memory + there, 1, 0, peer.rkey};
        } else {
            wr.wr.rdma = {peer.memory + there, peer.rkey};
        }
        ibv_send_wr* bad = nullptr;
        done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
    }
    /// Polls the next completion, with any status.
    ibv_wc next() const {
        ibv_wc wc{};
        int count = 0;
        const auto poll = [&] { return (count = ibv_poll_cq(cq, 1, &wc)) != 0; };
        if (!eventually(poll) || count < 0) {
            throw std::runtime_error("no completion");
        }
        return wc;
    }
    ibv_wc expect(std::uint64_t id) const {
        const ibv_wc wc = next();
        EXPECT_EQ(wc.wr_id, id);
        EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
        return wc;
    }
    void put(std::size_t offset, std::uint32_t length, unsigned seed) {
        std::vector<std::byte> bytes(length);
        for (std::size_t i = 0; i < length; ++i) {
            bytes[i] = at(i, seed);
        }
        if (dm != nullptr) {
            done(ibv_memcpy_to_dm(dm, offset, bytes.data(), length), "ibv_memcpy_to_dm");
        } else {
            std::copy(bytes.begin(), bytes.end(), data + offset);
        }
    }
    [[nodiscard]] bool has(std::size_t offset, std::uint32_t length, unsigned seed) const {
        std::vector<std::byte> bytes(length);
        if (dm != nullptr) {
            done(ibv_memcpy_from_dm(bytes.data(), dm, offset, length), "ibv_memcpy_from_dm");
        } else {
            std::copy_n(data + offset, length, bytes.begin());
        }
        for (std::size_t i = 0; i < length; ++i) {
            if (bytes[i] != at(i, seed)) {
                return false;
            }
        }
        return true;
    }

    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_qp* qp = nullptr;
    ibv_ah* ah = nullptr;
    ibv_dm* dm = nullptr;
    std::byte* data = nullptr;
    std::uint64_t base = 0; // as the region has it
    Address peer{};

  private:
    static std::byte at(std::size_t i, unsigned seed) {
        return static_cast<std::byte>(i * 7 + i / 251 + seed);
    }

    void register_memory(Memory kind) {
        if (kind == Memory::device) {
            ibv_alloc_dm_attr wanted{};
            wanted.length = dm_size;
            dm = made(ibv_alloc_dm(context, &wanted), "ibv_alloc_dm");
            mr = made(ibv_reg_dm_mr(pd, dm, 0, dm_size,
                                    static_cast<unsigned>(no_windows) | IBV_ACCESS_ZERO_BASED),
                      "ibv_reg_dm_mr");
            return;
        }
        int fd = -1;
        if (kind == Memory::memfd) {
            fd = ::memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            done(::ftruncate(fd, memory_size), "ftruncate");
            done(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), "F_ADD_SEALS");
        }
        void* const mapped = ::mmap(nullptr, memory_size, PROT_READ | PROT_WRITE,
                                    fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
        if (mapped == MAP_FAILED) {
            throw std::runtime_error("mmap");
        }
        data = static_cast<std::byte*>(mapped);
        base = reinterpret_cast<std::uint64_t>(mapped);
        mr = fd < 0 ? made(ibv_reg_mr(pd, mapped, memory_size, full_access), "ibv_reg_mr")
                    : made(ibv_reg_dmabuf_mr(pd, 0, memory_size, base, fd, no_windows),
                           "ibv_reg_dmabuf_mr");
    }

    static constexpr std::size_t dm_size = 65536;
};

class TwoProcesses : public testing::Test {
  protected:
    using Role = std::function<void(End&)>;
    /// Starts both ends and connects them.
    void start(const Role& one, const Role& other) {
        const auto run_role = [this](const Role& role) {
            return [&role, this](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                ::setenv("SOFTVERBS_PULL", pull.c_str(), 1);
                ::setenv("SOFTVERBS_FAULTS", faults.c_str(), 1);
                End end(socket, type, memory, timeout, retries);
                role(end);
                end.meet();
                return 0;
            };
        };
        children_ = fork_pair(2 * time_limit, run_role(one), run_role(other));
    }
    /// Checks that both ends have exited without a failure.
    void finish() {
        for (const pid_t child : children_) {
            expect_success(child);
        }
    }
    void run(const Role& one, const Role& other) {
        start(one, other);
        finish();
    }

    ibv_qp_type type = IBV_QPT_RC;
    Memory memory = Memory::host;
    std::uint8_t timeout = 0; // none
    std::uint8_t retries = 1;
    std::string pull = "process_vm";
    std::string faults;
    std::array<pid_t, 2> children_{};
    TemporaryDirectory directory_;
};

} // namespace softverbs_test
