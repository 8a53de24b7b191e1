// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "engine/responder.hpp"
#include "objects/multicast.hpp"
#include "objects/process.hpp"
#include "objects/scatter_to_cqe.hpp"
#include "objects/tag_matching.hpp"

// Implements the responder: executes the operation of a request packet.

namespace softverbs {

namespace {

/// Returns the checksum of an IPv4 header in network byte order. The checksum field of the header
/// must be 0.
std::uint16_t ipv4_checksum(const iphdr& header) noexcept {
    std::array<std::uint16_t, sizeof header / 2> words{};
    std::memcpy(words.data(), &header, sizeof header);
    std::uint32_t sum = 0;
    for (const std::uint16_t word : words) {
        sum += word;
    }
    sum = (sum & 0xffffU) + (sum >> 16U);
    sum = (sum & 0xffffU) + (sum >> 16U);
    return static_cast<std::uint16_t>(~sum);
}

/// Returns the 40 bytes that the receive buffer contains before the data of a datagram: a GRH or,
/// for RoCE v2 between IPv4 addresses, 20 zeros and an IPv4 header.
std::array<std::byte, grh_length> make_grh(const PacketHeader& header) noexcept {
    constexpr std::uint32_t bth = 12;
    constexpr std::uint32_t deth = 8;
    constexpr std::uint32_t immediate = 4;
    constexpr std::uint32_t icrc = 4;
    constexpr std::uint32_t udp = 8;
    constexpr std::uint8_t next_is_bth = 0x1b;
    const auto route = std::bit_cast<GlobalRoute>(header.compare_add);
    const auto data = static_cast<std::uint32_t>((header.length + 3) & ~std::uint64_t{3});
    const bool has_immediate = (header.flags & PacketHeader::has_immediate) != 0;
    const std::uint32_t length = (route.is_roce_v2 != 0 ? udp : 0) + bth + deth +
                                 (has_immediate ? immediate : 0) + data + icrc;
    std::array<std::byte, grh_length> bytes{};
    if (route.is_roce_v2 != 0 && is_ipv4(header.source_gid) && is_ipv4(header.destination_gid)) {
        iphdr ip{};
        ip.version = 4;
        ip.ihl = sizeof ip / 4;
        ip.tos = route.traffic_class;
        ip.tot_len = htobe16(static_cast<std::uint16_t>(sizeof ip + length));
        ip.frag_off = htobe16(IP_DF);
        ip.ttl = route.hop_limit;
        ip.protocol = IPPROTO_UDP;
        std::memcpy(&ip.saddr, header.source_gid.raw + 12, sizeof ip.saddr);
        std::memcpy(&ip.daddr, header.destination_gid.raw + 12, sizeof ip.daddr);
        ip.check = ipv4_checksum(ip);
        std::memcpy(bytes.data() + grh_length - sizeof ip, &ip, sizeof ip);
        return bytes;
    }
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6U << 28U | std::uint32_t{route.traffic_class} << 20U |
                                      (route.flow_label & 0xfffffU));
    grh.paylen = htobe16(static_cast<std::uint16_t>(length));
    grh.next_hdr = route.is_roce_v2 != 0 ? std::uint8_t{IPPROTO_UDP} : next_is_bth;
    grh.hop_limit = route.hop_limit;
    grh.sgid = header.source_gid;
    grh.dgid = header.destination_gid;
    static_assert(sizeof grh == grh_length);
    std::memcpy(bytes.data(), &grh, sizeof grh);
    return bytes;
}

/// Returns the value for ibv_wc::sl: the service level, or the type of the network header (GRH,
/// IPv4 or IPv6) if the packet is a datagram on Ethernet.
std::uint8_t received_service_level(const Qp& qp, const PacketHeader& header) {
    // A ConnectX NIC reports the type of a received RoCE packet in ibv_wc::sl: bit 3 is set if the
    // packet has a UDP header, and the lower bits are 0 for a GRH, 1 for an IPv6 header and 2 for
    // an IPv4 header. UCX needs these bits to find the destination GID.
    constexpr std::uint8_t has_udp = 8;
    constexpr std::uint8_t ipv6 = 1;
    constexpr std::uint8_t ipv4 = 2;
    const Port* const port = device_of(qp.qp_base).port(qp.attributes.port_num);
    if (qp.type() != IBV_QPT_UD || port == nullptr ||
        port->attributes.link_layer != IBV_LINK_LAYER_ETHERNET) {
        return header.service_level;
    }
    if (std::bit_cast<GlobalRoute>(header.compare_add).is_roce_v2 == 0) {
        return 0;
    }
    const bool both_ipv4 = is_ipv4(header.source_gid) && is_ipv4(header.destination_gid);
    return has_udp | (both_ipv4 ? ipv4 : ipv6);
}

} // namespace

Completion completion_of(const Qp& qp, const PacketHeader& header) {
    Completion completion;
    ibv_wc& wc = completion.wc;
    wc.src_qp = header.source;
    if ((header.flags & PacketHeader::has_immediate) != 0) {
        wc.imm_data = header.imm_or_key;
        wc.wc_flags |= IBV_WC_WITH_IMM;
    }
    if ((header.flags & PacketHeader::has_invalidate) != 0) {
        wc.invalidated_rkey = header.imm_or_key;
        wc.wc_flags |= IBV_WC_WITH_INV;
    }
    if (device_of(qp.qp_base).rules.is_efa) [[unlikely]] {
        // As with libefa, wc.slid is the number of the address handle for the sender, and the
        // completion reports no GRH.
        wc.slid = find_ah_number(qp.receive_pd(), header.source_gid);
        completion.source_gid = header.source_gid;
    } else {
        wc.slid = header.source_lid;
        wc.wc_flags |= (header.flags & PacketHeader::has_grh) != 0 ? unsigned{IBV_WC_GRH} : 0U;
    }
    wc.sl = received_service_level(qp, header);
    completion.solicited = (header.flags & PacketHeader::solicited) != 0;
    return completion;
}

void InboundRequest::send() {
    const bool tagged = has_tags(qp_);
    // A tag is at the start of the data and selects the receive buffer. Therefore the packet must
    // contain the data. If it contains only the address of the data, send a NAK, which makes the
    // sender send the data in packets.
    if (tagged && (header_.flags & PacketHeader::to_fetch) != 0) {
        send_nak(NakCode::resend_as_records);
        return;
    }
    if (!sums_up() || !(tagged ? have_tagged_receive() : have_receive())) {
        return;
    }
    const RecvRequest& request = responder_.current;
    const std::uint64_t skipped = responder_.matched ? sizeof(ibv_tmh) : 0;
    const std::uint64_t length = space_before_data() + header_.length - skipped;
    if (length > request.capacity()) {
        if (reliable()) {
            complete(receive_opcode(), IBV_WC_LOC_LEN_ERR, 0);
        }
        reject();
        return;
    }
    if (qp_.scatter_to_cqe != nullptr && !tagged && send_to_cqe()) {
        return;
    }
    {
        EntryList entries;
        if (!entries.open(qp_.receive_pd(), request.list(), length, true)) {
            deny_receive();
            return;
        }
        if (qp_.type() == IBV_QPT_UD && (header_.flags & PacketHeader::has_grh) != 0) {
            // Ignore the result of put(): it fails only if the CUDA driver cannot access GPU
            // memory. store() below then also fails, and its result is checked.
            static_cast<void>(entries.put(0, make_grh(header_)));
        }
        if (!store(entries, skipped)) {
            return;
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (is_last()) {
        end_send(length, nullptr);
    }
}

ibv_wc_opcode InboundRequest::receive_opcode() const {
    return has_tags(qp_) ? responder_.tag_opcode : IBV_WC_RECV;
}

void InboundRequest::deny_receive() {
    complete(receive_opcode(), IBV_WC_LOC_PROT_ERR, 0);
    send_nak(NakCode::remote_operation);
    enter_error(qp_);
}

bool InboundRequest::send_to_cqe() {
    if (header_.length == 0 || header_.length > qp_.scatter_to_cqe->receives ||
        packet_.bytes.size() != header_.length) {
        return false;
    }
    Scatter data;
    if (prepare_scatter(qp_.receive_pd(), responder_.current.list(), packet_.bytes, data)) {
        end_send(header_.length, &data);
    } else {
        deny_receive();
    }
    return true;
}

void InboundRequest::end_send(std::uint64_t length, const Scatter* data) {
    if ((header_.flags & PacketHeader::has_invalidate) != 0 &&
        !invalidate(qp_, header_.imm_or_key)) {
        // The rkey cannot be invalidated. This is a class J error of the InfiniBand specification:
        // the message is acknowledged, and only the responder reports the error. The completion
        // status is the same as in the rxe driver of the kernel.
        done();
        complete(receive_opcode(), IBV_WC_REM_INV_REQ_ERR, 0);
        enter_error(qp_);
        return;
    }
    tag_data_valid_ = responder_.matched;
    complete(receive_opcode(), IBV_WC_SUCCESS, length, data);
    done();
}

void InboundRequest::write() {
    Window window{};
    const bool with_immediate = (header_.flags & PacketHeader::has_immediate) != 0;
    // With immediate data, the last packet of an RDMA write needs a receive request. If the write
    // has only one packet, take the receive request before the rkey is checked: it must complete
    // with IBV_WC_LOC_ACCESS_ERR if the rkey is invalid.
    const bool single_packet = header_.length <= (std::uint64_t{128} << qp_.attributes.path_mtu);
    if (!sums_up() || !enabled(IBV_ACCESS_REMOTE_WRITE) ||
        (with_immediate && single_packet && !have_receive()) ||
        !permitted(IBV_ACCESS_REMOTE_WRITE, window)) {
        return;
    }
    const bool at_once = (header_.flags & PacketHeader::atomic_write) != 0;
    if (at_once &&
        (packet_.bytes.size() != sizeof(std::uint64_t) || header_.length != sizeof(std::uint64_t) ||
         header_.remote_address % sizeof(std::uint64_t) != 0 ||
         reinterpret_cast<std::uintptr_t>(window.data) % sizeof(std::uint64_t) != 0)) {
        reject();
        return;
    }
    if (with_immediate && is_last() && !have_receive()) {
        return;
    }
    {
        EntryList target;
        target.open(window, true);
        if (at_once && window.data != nullptr && !is_unmapped(window)) {
            engine_.release_writes();
            std::uint64_t value = 0;
            std::memcpy(&value, packet_.bytes.data(), sizeof value);
            std::atomic_ref(*reinterpret_cast<std::uint64_t*>(window.data)).store(value);
        } else if (process().disorder.writes() && !at_once && !with_immediate &&
                   (header_.flags & PacketHeader::to_fetch) == 0) {
            engine_.hold_write(window, header_.offset, packet_.bytes);
        } else {
            engine_.release_writes();
            if (!store(target)) {
                return;
            }
        }
    }
    responder_.in_message = true;
    responder_.received = header_.offset + header_.payload;
    if (!is_last()) {
        return;
    }
    if (from_ != nullptr && !from_->between_hosts() && !at_once && is_plain(window) &&
        qp_.requester.short_path && header_.mtu_or_rnr_timer == qp_.attributes.path_mtu) {
        engine_.grant_writes(qp_, *from_, header_.source, header_.rkey);
    }
    if (with_immediate) {
        complete(IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS, header_.length);
    }
    done();
}

void InboundRequest::read() {
    engine_.release_writes();
    Window window{};
    if (!permitted(IBV_ACCESS_REMOTE_READ, window)) {
        return;
    }
    Outgoing data = make_response(Kind::read_data);
    data.header.length = header_.length;
    data.header.offset = header_.offset;
    data.header.rkey = header_.rkey;
    data.header.remote_address = header_.remote_address;
    EntryList source;
    if ((header_.flags & PacketHeader::to_fetch) != 0) {
        if (header_.offset != 0 || engine_.describe(from_, fabric::Lane::responses,
                                                    std::span(&window, 1), data.segments) == 0) {
            send_nak(NakCode::resend_as_records);
            return;
        }
        data.set_segments(1);
        if (from_ != nullptr) {
            engine_.peers[from_].may_fetch_responses = true;
        }
    } else {
        if (header_.payload > record_payload) {
            reject();
            return;
        }
        source.open(window, false);
        data.header.payload = header_.payload;
        const auto parts =
            source.parts(header_.offset, header_.payload, std::span(data.parts).subspan(1));
        if (!parts) {
            send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
            return;
        }
        data.count = 1 + *parts;
    }
    if (header_.psn == responder_.expected_psn &&
        header_.offset + header_.payload == header_.length) {
        responder_.expected_psn = (header_.psn + 1) & psn_mask;
    }
    send_response(data);
}

void InboundRequest::atomic() {
    engine_.release_writes();
    Window window{};
    if (header_.length != sizeof(std::uint64_t) || header_.offset != 0 ||
        header_.remote_address % sizeof(std::uint64_t) != 0) {
        reject();
        return;
    }
    if (!permitted(IBV_ACCESS_REMOTE_ATOMIC, window)) {
        return;
    }
    if (reinterpret_cast<std::uintptr_t>(window.data) % sizeof(std::uint64_t) != 0) {
        reject();
        return;
    }
    const auto before = change(window);
    if (!before) {
        send_nak(NakCode::remote_access, IBV_EVENT_QP_ACCESS_ERR);
        return;
    }
    responder_.atomics[responder_.atomics_done++ % responder_.atomics.size()] = {header_.psn,
                                                                                 *before};
    responder_.expected_psn = (header_.psn + 1) & psn_mask;
    Outgoing result = make_response(Kind::atomic_result);
    result.header.compare_add = *before;
    send_response(result);
}

std::optional<std::uint64_t> InboundRequest::change(const Window& window) const {
    if (window.data == nullptr) {
        return 0;
    }
    const bool adds = header_.kind == Kind::fetch_add;
    std::uint64_t before = header_.compare_add;
    if (is_unmapped(window)) {
        // The CPU cannot access this memory, so the CUDA driver reads the old value and then writes
        // the new value. Between these two steps, Process::lock prevents an atomic operation of
        // another thread of this process. The operation is not atomic with respect to other
        // processes, the CPU and the GPU.
        if (!copy_from(window, 0, std::as_writable_bytes(std::span(&before, 1)))) {
            return std::nullopt;
        }
        const std::uint64_t after = adds                            ? before + header_.compare_add
                                    : before == header_.compare_add ? header_.swap
                                                                    : before;
        return copy_to(window, 0, std::as_bytes(std::span(&after, 1))) ? std::optional(before)
                                                                       : std::nullopt;
    }
    EntryList target;
    target.open(window, true);
    const std::atomic_ref<std::uint64_t> value(*reinterpret_cast<std::uint64_t*>(window.data));
    if (adds) {
        return value.fetch_add(header_.compare_add);
    }
    value.compare_exchange_strong(before, header_.swap);
    return before;
}

bool InboundRequest::is_valid_datagram() const {
    constexpr unsigned refused =
        PacketHeader::to_fetch | PacketHeader::has_invalidate | PacketHeader::ack_request;
    return header_.kind == Kind::send && (header_.flags & refused) == 0 && is_last() &&
           header_.offset == 0 && header_.qkey == qp_.attributes.qkey;
}

} // namespace softverbs
