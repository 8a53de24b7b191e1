// SPDX-License-Identifier: BSD-3-Clause
// Records from another process, for queue pairs that are connected with it: parse_packet(), the
// responder and the requester.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/implementation.hpp"
#include "input.hpp"
#include "objects/process.hpp"
#include "softverbs/softverbs.h"
#include "temporary_directory.hpp"

namespace softverbs::fuzz {
namespace {

constexpr unsigned peer_slot = 1000;
constexpr std::uint32_t peer_number = (peer_slot << qp_index_bits) | 1;
constexpr std::size_t memory_size = 65536;

/// The other process: takes everything, and has bytes to fetch wherever it is asked for them, at
/// times.
class Peer final : public fabric::Connection {
  public:
    bool has_bytes = true;

    [[nodiscard]] unsigned slot() const noexcept override { return peer_slot; }
    [[nodiscard]] std::size_t max_record() const noexcept override { return memory_size; }
    [[nodiscard]] fabric::Sent send(
        fabric::Lane /*lane*/,
        std::span<const std::span<const std::byte>> parts) noexcept override {
        std::size_t sum = 0;
        for (const auto& part : parts) {
            for (const std::byte byte : part) {
                sum += static_cast<std::size_t>(byte); // what is sent can be read
            }
        }
        sum_ += sum;
        ++sent_;
        return fabric::Sent::sent;
    }
    [[nodiscard]] bool has_room(fabric::Lane /*lane*/, std::size_t /*length*/) noexcept override {
        return true;
    }
    void close() noexcept override {}
    [[nodiscard]] std::uint64_t sent() const noexcept override { return sent_; }
    [[nodiscard]] std::uint64_t taken() const noexcept override { return sent_; }
    [[nodiscard]] fabric::PullMethod pull_method() const noexcept override {
        return fabric::PullMethod::process_vm;
    }
    [[nodiscard]] int pull(std::uint64_t /*address*/, std::uint32_t /*share*/,
                           std::span<std::byte> into) noexcept override {
        if (!has_bytes) {
            return EFAULT;
        }
        std::fill(into.begin(), into.end(), std::byte{0x5a});
        return 0;
    }
    [[nodiscard]] std::uint32_t offer(fabric::Lane /*lane*/) const noexcept override { return 0; }
    void withdraw(fabric::Lane /*lane*/) noexcept override {}
    [[nodiscard]] bool stands(fabric::Lane /*lane*/, std::uint32_t offer) const noexcept override {
        return offer == 0;
    }
    [[nodiscard]] int share(std::uint32_t /*id*/, int /*fd*/,
                            std::size_t /*length*/) noexcept override {
        return 0;
    }
    void unshare(std::uint32_t /*id*/) noexcept override {}

  private:
    std::uint64_t sent_ = 0;
    std::uint64_t sum_ = 0;
};

void check(bool good) {
    if (!good) {
        std::abort();
    }
}

/// A short header with the same fields.
std::vector<std::byte> short_form(const PacketHeader& header) {
    ShortHeader form{};
    form.form_and_service =
        ShortHeader::first_byte(static_cast<ibv_qp_type>(header.service), IBV_MTU_4096);
    form.kind = header.kind;
    form.flags = header.flags;
    form.device = header.device;
    form.destination = header.destination;
    form.source = header.source;
    form.psn = header.psn;
    form.imm_or_key = header.imm_or_key;
    form.rkey = header.rkey;
    form.remote_address = header.remote_address;
    std::vector<std::byte> bytes(ShortHeader::size(form.kind));
    write_short_header(bytes.data(), form);
    return bytes;
}

/// A queue pair that can receive and send, with requests in both of its queues.
struct Connected {
    Qp* qp;
    ibv_cq* cq;

    Connected(ibv_context* context, ibv_pd* pd, ibv_mr* mr, ibv_qp_type type, Peer& peer)
        : cq(ibv_create_cq(context, 256, nullptr, nullptr, 0)) {
        check(cq != nullptr);
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.cap = {16, 16, 2, 2, 64};
        init.qp_type = type;
        init.sq_sig_all = 1;
        ibv_qp* const native = ibv_create_qp(pd, &init);
        check(native != nullptr);
        qp = &Qp::of(native);
        connect(native, type);
        qp->requester.connection = &peer;
        post(native, mr, type);
    }
    ~Connected() {
        check(ibv_destroy_qp(qp->native()) == 0);
        check(ibv_destroy_cq(cq) == 0);
    }
    Connected(const Connected&) = delete;
    Connected& operator=(const Connected&) = delete;

  private:
    static void connect(ibv_qp* native, ibv_qp_type type) {
        ibv_qp_attr attr{};
        attr.port_num = 1;
        attr.qkey = 1;
        attr.qp_access_flags =
            IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        attr.path_mtu = IBV_MTU_4096;
        attr.dest_qp_num = peer_number;
        attr.max_dest_rd_atomic = attr.max_rd_atomic = 4;
        attr.ah_attr.dlid = 1;
        attr.ah_attr.port_num = 1;
        attr.retry_cnt = attr.rnr_retry = 7;
        const bool datagrams = type == IBV_QPT_UD;
        const bool reliable = type == IBV_QPT_RC;
        attr.qp_state = IBV_QPS_INIT;
        check(ibv_modify_qp(native, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
        attr.qp_state = IBV_QPS_RTR;
        check(ibv_modify_qp(
                  native, &attr,
                  IBV_QP_STATE |
                      (datagrams ? 0
                                 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
                      (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)) == 0);
        attr.qp_state = IBV_QPS_RTS;
        check(ibv_modify_qp(native, &attr,
                            IBV_QP_STATE | IBV_QP_SQ_PSN |
                                (reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                IBV_QP_MAX_QP_RD_ATOMIC
                                          : 0)) == 0);
    }
    static void post(ibv_qp* native, ibv_mr* mr, ibv_qp_type type) {
        ibv_sge sge{reinterpret_cast<std::uint64_t>(mr->addr), 4096, mr->lkey};
        for (int i = 0; i < 4; ++i) {
            ibv_recv_wr wr{0, nullptr, &sge, 1};
            ibv_recv_wr* bad = nullptr;
            check(ibv_post_recv(native, &wr, &bad) == 0);
        }
        if (type == IBV_QPT_UD) {
            return;
        }
        for (const ibv_wr_opcode opcode :
             {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND, IBV_WR_RDMA_READ}) {
            if (type == IBV_QPT_UC && opcode != IBV_WR_SEND) {
                continue;
            }
            ibv_sge local = sge;
            local.length = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : 32768;
            ibv_send_wr wr{};
            wr.sg_list = &local;
            wr.num_sge = 1;
            wr.opcode = opcode;
            ibv_send_wr* bad = nullptr;
            check(ibv_post_send(native, &wr, &bad) == 0);
        }
    }
};

/// Where the device would meet other processes. Gone with this one.
class Meeting {
  public:
    Meeting() { ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1); }
    ~Meeting() { check(std::filesystem::is_empty(directory_.path())); }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

  private:
    TemporaryDirectory directory_;
};

struct Device {
    alignas(64) std::array<std::byte, memory_size> memory{};
    ibv_context* context = open();
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_mr* mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);

    Device() { check(mr != nullptr); }
    ~Device() {
        check(ibv_dereg_mr(mr) == 0);
        check(ibv_dealloc_pd(pd) == 0);
        check(ibv_close_device(context) == 0);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

  private:
    static ibv_context* open() {
        // Made before the first call of verbs: what that registers for the end then goes first.
        static const Meeting meeting;
        // Numbers, keys and counters begin anew, so that an input does the same whatever ran before
        // it.
        check(softverbs_reset("default", 1) == 0);
        ibv_device** const list = ibv_get_device_list(nullptr);
        check(list != nullptr && list[0] != nullptr);
        ibv_context* const context = ibv_open_device(list[0]);
        ibv_free_device_list(list);
        return context;
    }
};

/// What would never be hit by chance is right most of the time.
void help(PacketHeader& header, const Qp& qp, const ibv_mr& mr, unsigned hints) {
    if ((hints & 1U) != 0) {
        header.magic = packet_magic;
        header.destination = qp.number();
        header.source = peer_number;
        header.service = static_cast<std::uint8_t>(qp.type());
        header.device = 0;
    }
    if ((hints & 2U) != 0) {
        header.psn = (qp.responder.expected_psn + (header.psn & 3U)) & psn_mask;
    }
    if ((hints & 4U) != 0) {
        header.psn &= 7U;
    }
    if ((hints & 8U) != 0) {
        header.rkey = mr.rkey;
        header.remote_address =
            reinterpret_cast<std::uint64_t>(mr.addr) + header.remote_address % memory_size;
    }
    if ((hints & 16U) != 0) {
        header.length %= memory_size;
        header.offset = header.length == 0 ? 0 : header.offset % header.length;
    }
    if ((hints & 32U) != 0) {
        header.flags &= static_cast<std::uint8_t>(~PacketHeader::is_corrupt);
        header.qkey = 1;
    }
}

void run(Input input) {
    const Device device;
    constexpr std::array types{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
    Peer peer;
    const Connected connected(device.context, device.pd, device.mr,
                              types[input.take<std::uint8_t>() % types.size()], peer);
    const Guard guard;
    Engine::Implementation& engine = process().engine.implementation();
    for (int count = 0; count < 64 && !input.empty(); ++count) {
        const auto hints = input.take<std::uint8_t>();
        const auto lane =
            input.take<std::uint8_t>() % 2 == 0 ? fabric::Lane::requests : fabric::Lane::responses;
        auto header = input.take<PacketHeader>();
        const auto payload = input.take(input.take<std::uint16_t>() % 4096);
        help(header, *connected.qp, *device.mr, hints);
        if ((hints & 64U) != 0) {
            header.payload =
                static_cast<std::uint32_t>((header.flags & PacketHeader::to_fetch) != 0
                                               ? payload.size() / sizeof(fabric::Segment)
                                               : payload.size());
        }
        peer.has_bytes = (hints & 128U) == 0;
        std::vector<std::byte> head(sizeof header);
        std::memcpy(head.data(), &header, sizeof header);
        if ((header.service_level & 0x80U) != 0) {
            head = short_form(header);
        }
        // Memory of just this size, so that reading past its end is noticed.
        std::vector<std::byte> record(head.size() + payload.size());
        std::memcpy(record.data(), head.data(), head.size());
        if (!payload.empty()) {
            std::memcpy(record.data() + head.size(), payload.data(), payload.size());
        }
        if (lane != fabric::Lane::requests || !engine.receive_short(&peer, record)) {
            // A packet that has to wait for a copy in progress is dropped.
            static_cast<void>(engine.receive(&peer, lane, record));
        }
    }
    engine.on_closed(peer);
}

} // namespace
} // namespace softverbs::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    softverbs::fuzz::run(softverbs::fuzz::Input(data, size));
    return 0;
}
