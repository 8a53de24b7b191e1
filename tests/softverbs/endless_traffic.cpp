// SPDX-License-Identifier: BSD-3-Clause
// A program that is one end of a connection. It posts requests of all kinds until a request fails
// or it receives a command to stop. Its standard input is a socket to the other end. On standard
// output, it prints "running", and at its end "stopped" or the status of the failed request.
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "checked_calls.hpp"

namespace {

using softverbs_test::done;
using softverbs_test::made;

constexpr std::size_t memory_size = std::size_t{1} << 20;
constexpr std::size_t half = memory_size / 2;
constexpr int depth = 16;

struct Address {
    ibv_gid gid;
    std::uint16_t lid;
    std::uint32_t qp_number;
    std::uint32_t rkey;
    std::uint64_t memory;
};

void connect(ibv_qp* qp, const Address& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags =
        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
         "INIT");
    attr = {};
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = peer.qp_number;
    attr.max_dest_rd_atomic = 4;
    attr.min_rnr_timer = 1;
    attr.ah_attr.dlid = peer.lid;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.port_num = 1;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 12; // 17 ms
    attr.retry_cnt = 3;
    attr.rnr_retry = 7;
    attr.max_rd_atomic = 4;
    done(ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

/// Returns request number @p i. The kinds of requests alternate.
ibv_send_wr request(std::uint64_t i, const Address& peer) {
    constexpr std::array opcodes{IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                 IBV_WR_SEND, IBV_WR_RDMA_WRITE};
    ibv_send_wr wr{};
    wr.wr_id = i;
    wr.opcode = opcodes[i % opcodes.size()];
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = peer.memory + half;
    wr.wr.rdma.rkey = peer.rkey;
    if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = peer.memory + half;
        wr.wr.atomic.rkey = peer.rkey;
        wr.wr.atomic.compare_add = 1;
    }
    return wr;
}
std::uint32_t length(std::uint64_t i) {
    switch (i % 5) {
        case 0:
            return 8;
        case 1:
            return 100'000;
        case 2:
            return 8;
        case 3:
            return 64;
        default:
            return half;
    }
}

bool told_to_stop(int socket) {
    pollfd poll{socket, POLLIN, 0};
    return ::poll(&poll, 1, 0) == 1;
}

const char* run(int socket) {
    ibv_device** list = made(ibv_get_device_list(nullptr), "ibv_get_device_list");
    ibv_context* context = made(ibv_open_device(made(list[0], "device")), "ibv_open_device");
    ibv_pd* pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
    // The process ends without destroying its objects. A static variable refers to them, so that a
    // leak checker does not report them.
    static ibv_cq* cq =
        made(ibv_create_cq(context, 4 * depth, nullptr, nullptr, 0), "ibv_create_cq");
    // Never freed, because the peer may write to the memory until this process has ended.
    static auto& memory = *new std::vector<std::byte>(memory_size);
    ibv_mr* mr = made(ibv_reg_mr(pd, memory.data(), memory.size(),
                                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC),
                      "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {depth, 2 * depth, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* qp = made(ibv_create_qp(pd, &init), "ibv_create_qp");

    Address ours{};
    ibv_port_attr port{};
    done(ibv_query_port(context, 1, &port), "ibv_query_port");
    done(ibv_query_gid(context, 1, 0, &ours.gid), "ibv_query_gid");
    ours.lid = port.lid;
    ours.qp_number = qp->qp_num;
    ours.rkey = mr->rkey;
    ours.memory = reinterpret_cast<std::uint64_t>(memory.data());
    Address peer{};
    if (::send(socket, &ours, sizeof ours, MSG_NOSIGNAL) != sizeof ours ||
        ::recv(socket, &peer, sizeof peer, MSG_WAITALL) != sizeof peer) {
        return "no peer";
    }
    connect(qp, peer);

    const auto receive = [&] {
        ibv_sge sge{ours.memory, 64, mr->lkey};
        ibv_recv_wr wr{0, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        done(ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
    };
    for (int i = 0; i < 2 * depth; ++i) {
        receive();
    }
    // The queue pair of the peer does not respond before it is connected, too.
    char byte = 'c';
    if (::send(socket, &byte, 1, MSG_NOSIGNAL) != 1 || ::recv(socket, &byte, 1, 0) != 1) {
        return "no peer";
    }
    std::puts("running");
    std::fflush(stdout);

    std::uint64_t posted = 0;
    std::uint64_t completed = 0;
    while (true) {
        // The lower half of the memory is used for sends and reads of this process. The peer writes
        // to the upper half.
        for (; posted - completed < depth; ++posted) {
            ibv_sge sge{ours.memory, length(posted), mr->lkey};
            ibv_send_wr wr = request(posted, peer);
            wr.sg_list = &sge;
            ibv_send_wr* bad = nullptr;
            done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
        }
        std::array<ibv_wc, depth> found{};
        const int count = ibv_poll_cq(cq, depth, found.data());
        for (int i = 0; i < count; ++i) {
            const ibv_wc& wc = found[static_cast<std::size_t>(i)];
            if (wc.status != IBV_WC_SUCCESS) {
                return ibv_wc_status_str(wc.status);
            }
            if ((wc.opcode & IBV_WC_RECV) != 0) {
                receive();
            } else {
                ++completed;
            }
        }
        if (count < 0) {
            return "polling failed";
        }
        if (told_to_stop(STDERR_FILENO)) {
            return "stopped";
        }
    }
}

} // namespace

int main() {
    try {
        std::puts(run(STDIN_FILENO));
    } catch (const std::exception& error) {
        std::puts(error.what());
    }
    std::fflush(stdout);
}
