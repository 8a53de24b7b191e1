// SPDX-License-Identifier: BSD-3-Clause
#include "transfers.hpp"

#include <array>
#include <cerrno>
#include <span>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/work_request.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

Transfers::Transfers(End& end, const Options& options, Role role)
    : end_(&end),
      role_(role),
      verb_(options.verb),
      check_(options.check),
      total_(options.transfers()),
      warmup_(options.warmup),
      depth_(options.depth),
      checker_(
          [&memory = end.resources.memory](auto mode, auto offset, auto length, const auto& use) {
              memory.access(mode, offset, length, use);
          },
          end.resources.layout, options.verb, role),
      in_flight_(options.depth),
      begun_(options.depth) {
    if (role == Role::initiator) {
        times_.reserve(options.iterations);
    }
    checker_.initialise();
}

bool Transfers::may_post() const noexcept {
    if (posted_ == total_ || posted_ - completed_ == depth_) {
        return false;
    }
    if (role_ == Role::responder) {
        return posted_ < arrived_;
    }
    return !in_flight_[posted_ % depth_] && (!is_exchange(verb_) || posted_ - arrived_ < depth_);
}

bool Transfers::finished() const noexcept {
    if (!is_exchange(verb_)) {
        return role_ == Role::responder || completed_ == total_;
    }
    return completed_ == total_ && arrived_ == total_;
}

std::string Transfers::describe() const {
    return fmt::format("the {} had {} of {} transfers", to_string(role_),
                       is_exchange(verb_) ? arrived_ : completed_, total_);
}

bool Transfers::progress() {
    bool progressed = false;
    for (; may_post(); ++posted_) {
        post(posted_);
        progressed = true;
    }
    std::array<WorkCompletion, 16> completions; // NOLINT(*-member-init): poll() fills it
    const int count = end_->resources.cq.poll(completions);
    if (count < 0) {
        throw Error(EIO, "ibv_poll_cq", "the completion queue is broken");
    }
    for (const WorkCompletion& completion :
         std::span(completions).first(static_cast<std::size_t>(count))) {
        handle(completion);
    }
    return progressed || count > 0;
}

void Transfers::post(std::uint64_t transfer) {
    if (check_) {
        checker_.before_post(transfer);
    }
    if (role_ == Role::initiator) {
        const auto now = Clock::now();
        begun_[transfer % depth_] = now;
        in_flight_[transfer % depth_] = true;
        if (transfer == warmup_) {
            first_ = now;
        }
    }
    post_requests(transfer).throw_if_failed();
}

CallStatus Transfers::post_requests(std::uint64_t transfer) {
    const QueuePair& qp = end_->queue_pair();
    const Resources& own = end_->resources;
    const Layout& layout = own.layout;
    const std::size_t slot = layout.slot(transfer);
    const ibv_sge outgoing = own.memory.sge(slot + layout.outgoing(), layout.size());
    const ibv_sge incoming = own.memory.sge(slot + layout.incoming(), layout.size());
    // The region of the peer has the same layout, so the offsets of this end are valid at the peer.
    const RemoteAddress to = end_->peer.at(slot + layout.incoming());
    const RemoteAddress from = end_->peer.at(slot + layout.outgoing());
    const WorkOptions signaled{.wr_id = transfer, .flags = SendFlags::signaled};
    const auto value = [&](std::uint64_t number) {
        return atomic_value(verb_, number, layout.depth());
    };
    if (end_->address_handle) {
        return post_srd_request(transfer, outgoing, incoming, to, from);
    }
    switch (verb_) {
        case Verb::send:
            return qp.post_send(outgoing, signaled);
        case Verb::write_imm:
            return qp.post_write_imm(outgoing, to, static_cast<std::uint32_t>(transfer), signaled);
        case Verb::read:
            return qp.post_read(incoming, from, signaled);
        case Verb::compare_swap:
            return qp.post_compare_swap(incoming, from, value(transfer), value(transfer + depth_),
                                        signaled);
        case Verb::fetch_add:
            return qp.post_fetch_add(incoming, from, atomic_addend, signaled);
        case Verb::write:
            break;
    }
    // The peer gets no completion of a write. So this end also posts a send. A reliable connection
    // executes requests in order: when the send arrives, the write is complete.
    SendList<2> list;
    list.write({&outgoing, 1}, to, {.wr_id = transfer, .flags = SendFlags::none});
    list.send({}, signaled);
    ibv_send_wr* failed = nullptr;
    return qp.post(list, failed);
}

CallStatus Transfers::post_srd_request(std::uint64_t transfer, const ibv_sge& outgoing,
                                       const ibv_sge& incoming, RemoteAddress to,
                                       RemoteAddress from) const {
    const QueuePair& qp = end_->queue_pair();
    const Destination peer = end_->address_handle->destination(end_->peer_address);
    const WorkOptions signaled{.wr_id = transfer, .flags = SendFlags::signaled};
    switch (verb_) {
        case Verb::send:
            return qp.post_send_to(outgoing, peer, signaled);
        case Verb::write_imm:
            return qp.post_write_imm_to(outgoing, peer, to, static_cast<std::uint32_t>(transfer),
                                        signaled);
        case Verb::read:
            return qp.post_read_from(incoming, peer, from, signaled);
        default: // complete() refuses the other verbs
            return {Status(EOPNOTSUPP), "ibv_post_send"};
    }
}

void Transfers::handle(const WorkCompletion& completion) {
    if (!succeeded(completion)) {
        throw Error(EIO, "ibv_poll_cq",
                    fmt::format("{} ({})", rdmabuf::describe(completion), describe()));
    }
    if ((completion.opcode & IBV_WC_RECV) != 0) {
        if (verb_ == Verb::send && completion.byte_len != end_->resources.layout.size()) {
            throw Error(EPROTO, "ibv_poll_cq",
                        fmt::format("a message of {} bytes arrived instead of {}",
                                    completion.byte_len, end_->resources.layout.size()));
        }
        on_arrival();
        return;
    }
    ++completed_;
    if (role_ == Role::initiator && !is_exchange(verb_)) {
        on_finished(completion.wr_id);
    }
}

void Transfers::on_arrival() {
    const std::uint64_t transfer = arrived_++;
    if (role_ == Role::initiator) {
        on_finished(transfer);
    } else if (check_) {
        checker_.arrived(transfer);
    }
    // Posts the receive for the next transfer in this slot (a part of the memory, which many
    // transfers use in turn). This is early enough: the peer uses the slot again only after this
    // end has sent in this slot.
    const auto sge = end_->resources.receive(transfer);
    end_->queue_pair()
        .post_recv(std::span(sge ? &*sge : nullptr, sge ? 1 : 0), transfer)
        .throw_if_failed();
}

void Transfers::on_finished(std::uint64_t transfer) {
    in_flight_[transfer % depth_] = false;
    if (transfer >= warmup_) {
        last_ = Clock::now();
        times_.push_back(last_ - begun_[transfer % depth_]);
    }
    if (check_) {
        checker_.arrived(transfer);
    }
}

Checked Transfers::finish() {
    if (check_) {
        checker_.finish(total_);
    }
    return checker_.checked();
}

} // namespace rdmabuf::tools::perf
