// SPDX-License-Identifier: BSD-3-Clause
#include "side.hpp"

#include <cerrno>
#include <span>

#include <rdmabuf/error.hpp>
#include <rdmabuf/work_list.hpp>

namespace pingpong {

namespace {

using rdmabuf::SendFlags;

constexpr rdmabuf::WorkOptions signaled{.wr_id = send_id, .flags = SendFlags::signaled};
constexpr rdmabuf::WorkOptions silent{.wr_id = send_id, .flags = SendFlags::none};

std::uint32_t announcement(std::uint64_t transfer) noexcept {
    return Endpoint::immediate(Word::data, static_cast<std::uint32_t>(transfer));
}

ibv_sge local_part(const Station& station, std::size_t offset) {
    return station.memory->region().sge(offset, static_cast<std::uint32_t>(station.layout.size));
}

// The peer's region is laid out as ours.
rdmabuf::RemoteAddress peer_part(Endpoint& endpoint, std::size_t offset) {
    return endpoint.peer().slice(offset, endpoint.station().layout.size);
}

} // namespace

Side::Side(Endpoint& endpoint, Role role, const Options& options)
    : endpoint_(&endpoint),
      verb_(options.verb),
      validate_(options.validate),
      validator_(*endpoint.station().memory, endpoint.station().layout, options.verb, role),
      outgoing_(local_part(endpoint.station(), endpoint.station().layout.outgoing)),
      incoming_(local_part(endpoint.station(), endpoint.station().layout.incoming)),
      peer_outgoing_(peer_part(endpoint, endpoint.station().layout.outgoing)),
      peer_incoming_(peer_part(endpoint, endpoint.station().layout.incoming)) {
    validator_.initialise();
}

void Side::prepare(std::uint64_t transfer) {
    endpoint_->replenish_receives();
    if (validate_) {
        validator_.fill(transfer);
    }
}

void Side::begin(std::uint64_t transfer) {
    is_exchange(verb_) ? post_data(transfer) : post_fetch(transfer);
}

void Side::answer(std::uint64_t transfer) {
    if (is_exchange(verb_)) {
        await_data(transfer);
        post_data(transfer);
        endpoint_->await_sent("the acknowledgement of the answer");
    }
}

void Side::complete(std::uint64_t transfer) {
    if (is_exchange(verb_)) {
        await_data(transfer);
    }
    endpoint_->await_sent("the completion of the transfer");
}

void Side::check(std::uint64_t transfer) {
    if (validate_) {
        validator_.check(transfer);
    }
}

void Side::post_data(std::uint64_t transfer) {
    const rdmabuf::QueuePair& qp = endpoint_->queue_pair();
    switch (verb_) {
        case Verb::write: {
            // A write is silent at the other end; an empty send behind it says that it is there.
            // Requests of a reliable connection take effect in order.
            rdmabuf::SendList<2> requests;
            requests.write(std::span(&outgoing_, 1), peer_incoming_, silent);
            requests.send_imm(std::span<const ibv_sge>(), announcement(transfer), signaled);
            ibv_send_wr* failed = nullptr;
            endpoint_->posted(qp.post(requests, failed), "ibv_post_send");
            break;
        }
        case Verb::write_imm:
            endpoint_->posted(
                qp.post_write_imm(outgoing_, peer_incoming_, announcement(transfer), signaled),
                "ibv_post_send");
            break;
        default:
            endpoint_->posted(qp.post_send(outgoing_, signaled), "ibv_post_send");
            break;
    }
}

void Side::await_data(std::uint64_t transfer) {
    if (verb_ != Verb::send) {
        endpoint_->await(Word::data, static_cast<std::uint32_t>(transfer),
                         "the announcement of the data");
        return;
    }
    endpoint_->await_data(outgoing_.length, "the data");
}

void Side::post_fetch(std::uint64_t transfer) {
    const rdmabuf::QueuePair& qp = endpoint_->queue_pair();
    switch (verb_) {
        case Verb::compare_swap:
            endpoint_->posted(
                qp.post_compare_swap(incoming_, peer_outgoing_, atomic_value(verb_, transfer),
                                     atomic_value(verb_, transfer + 1), signaled),
                "ibv_post_send");
            break;
        case Verb::fetch_add:
            endpoint_->posted(qp.post_fetch_add(incoming_, peer_outgoing_, atomic_addend, signaled),
                              "ibv_post_send");
            break;
        default:
            endpoint_->posted(qp.post_read(incoming_, peer_outgoing_, signaled), "ibv_post_send");
            break;
    }
}

} // namespace pingpong
