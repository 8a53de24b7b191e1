// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/transport/detail/rail_set.hpp>

namespace rdmabuf::transport::detail {

RailSet::RailSet(SharedState& shared, ChannelLinks& channel, std::vector<ChannelRail> rails,
                 std::uint32_t inline_data, std::uint32_t max_message) noexcept
    : shared_(shared),
      channel_(channel),
      rails_(std::move(rails)),
      inline_data_(inline_data),
      max_message_(max_message),
      held_(shared.pool) {
    for (const ChannelRail& rail : rails_) {
        speed_ += shared_.rails[rail.device]->speed;
    }
}

std::size_t RailSet::rail_of(const AsyncEvent& event) const noexcept {
    return static_cast<std::size_t>(
        std::ranges::find_if(
            rails_, [&](const ChannelRail& rail) { return event.is_of(rail.queue_pair); }) -
        rails_.begin());
}

bool RailSet::send(const Header& header, std::span<const std::byte> body, RequestState* request,
                   bool always_signal) noexcept {
    return with_message(header, body, [&](ibv_send_wr& message) {
        return post(0, message, request, always_signal);
    });
}

bool RailSet::send_gathered(const Header& header, const ibv_sge& data,
                            RequestState& request) noexcept {
    return with_buffer(header, {}, &data,
                       [&](ibv_send_wr& message) { return post(0, message, &request); });
}

RailSet::Posted RailSet::write_and_send(ibv_send_wr& write, const Header& header,
                                        std::span<const std::byte> body,
                                        RequestState& request) noexcept {
    Posted posted = Posted::none;
    static_cast<void>(with_message(header, body, [&](ibv_send_wr& message) {
        write.next = &message;
        posted = static_cast<Posted>(post_chain(0, write, request));
        return posted == Posted::both;
    }));
    return posted;
}

bool RailSet::post(std::size_t rail, ibv_send_wr& work, RequestState* request, bool always_signal,
                   Work type) noexcept {
    ChannelRail& to = rails_[rail];
    const bool signaled = always_signal || request != nullptr || to.queue.must_signal() ||
                          (work.send_flags & IBV_SEND_SIGNALED) != 0;
    const std::uint32_t number = type == Work::fence  ? next_immediate(rail) & WorkId::no_request
                                 : request != nullptr ? request->index
                                                      : WorkId::no_request;
    work.wr_id = WorkId{.work = type, .number = number, .sequence = to.queue.next()}.encode();
    work.send_flags |= signaled ? unsigned{IBV_SEND_SIGNALED} : 0U;
    ibv_send_wr* failed = nullptr;
    if (const int error = ibv_post_send(to.queue_pair.native(), &work, &failed); error != 0) {
        if (error != ENOMEM && rail == 0) {
            fail(EIO, "ibv_post_send failed", request, error);
        } else if (error != ENOMEM) {
            leave_out(rail, EIO, "ibv_post_send failed");
        }
        return false;
    }
    to.queue.posted(signaled);
    fast.sends -= std::min(fast.sends, std::uint32_t{rail == 0});
    if (request != nullptr) {
        ++request->pending;
    }
    if (request != nullptr || type == Work::fence) {
        to.last_needed = to.queue.next() - 1; // queue.posted() has already advanced next().
    }
    return true;
}

std::size_t RailSet::post_chain(std::size_t rail, ibv_send_wr& first,
                                RequestState& request) noexcept {
    ChannelRail& to = rails_[rail];
    SendQueue& queue = to.queue;
    const std::uint64_t part = WorkId{.work = Work::remote_part, .number = request.index}.encode();
    std::uint32_t count = 0;
    ibv_send_wr* last = nullptr;
    for (ibv_send_wr* work = &first; work != nullptr; work = work->next) {
        work->wr_id = part | (queue.next() + count++);
        work->send_flags &= ~unsigned{IBV_SEND_SIGNALED};
        last = work;
    }
    last->wr_id =
        WorkId{.work = Work::remote, .number = request.index, .sequence = queue.next() + count - 1}
            .encode();
    last->send_flags |= unsigned{IBV_SEND_SIGNALED};
    ibv_send_wr* failed = nullptr;
    const int error = ibv_post_send(to.queue_pair.native(), &first, &failed);
    if (error != 0) [[unlikely]] {
        count = 0;
        for (const ibv_send_wr* work = &first; work != failed; work = work->next) {
            ++count;
        }
    }
    queue.posted(error == 0, count);
    fast.sends -= std::min(fast.sends, rail == 0 ? count : 0);
    if (error == 0) [[likely]] {
        ++request.pending;
        to.last_needed = queue.next() - 1; // queue.posted() has already advanced next().
    } else if (rail != 0 && (error != ENOMEM || count != 0)) {
        leave_out(rail, EIO, "ibv_post_send failed");
    } else if (error != ENOMEM) {
        fail(EIO, "ibv_post_send failed", &request, error);
    }
    return count;
}

void RailSet::completed(std::size_t rail, std::uint32_t sequence) noexcept {
    SendQueue& queue = rails_[rail].queue;
    queue.completed(sequence);
    if (rail == 0) {
        held_.release_completed(queue);
    }
}

std::uint32_t RailSet::start(RdmaTransfer& transfer, std::uint64_t length) noexcept {
    const std::uint32_t used = share(transfer, length);
    transfer.request->transfer = &transfer;
    transfers_.push_back(&transfer);
    if (rails_.size() > 1) {
        transfer.lost = transfer.pending = 0;
        transfer.next_of_request = nullptr;
        RdmaTransfer** last = &transfer.request->unconfirmed;
        while (*last != nullptr) {
            last = &(*last)->next_of_request;
        }
        *last = &transfer;
        all_transfers_.push_back(&transfer);
    }
    if (transfer.keeps_order) {
        hold_messages();
    }
    return used;
}

void RailSet::hold_messages() noexcept {
    ++ordered_;
    fast.sends = 0;
}

bool RailSet::post_fence(std::size_t rail, ibv_send_wr& work) noexcept {
    if (!post(rail, work, nullptr, true, Work::fence)) {
        return false;
    }
    ++rails_[rail].immediates_posted;
    return true;
}

void RailSet::fence_completed(std::size_t rail, std::uint32_t number) noexcept {
    // WorkId::number has only the lower 24 bits of the sequence number. The full number is at most
    // that of the last posted write.
    const std::uint32_t posted = rails_[rail].immediates_posted;
    immediate_confirmed(rail, posted - ((posted - number) & WorkId::no_request));
}

void RailSet::leave_out(std::size_t rail, int error, const char* reason) noexcept {
    if (rail == 0 || suspended_) {
        fail(error, reason);
        return;
    }
    ChannelRail& failed = rails_[rail];
    if (broken_ != 0 || !failed.connected) {
        return;
    }
    failed.failed_ns = now_ns();
    if (failed.failure == nullptr) {
        speed_ -= shared_.rails[failed.device]->speed;
        const std::int64_t longest = std::chrono::nanoseconds(shared_.options.probation).count()
                                     << max_replacements;
        if (failed.failed_ns - failed.replaced_ns > longest) {
            failed.replacements = 0;
        }
    }
    failed.connected = false;
    failed.failure = reason;
    recovering_ |= 1U << rail;
    shared_.recovers = true;
    shared_.wake(channel_);
    // With `true`, stop() posts one last send request, even if the send queue is empty. Its
    // completion is polled after the completions of all data that has arrived on this queue pair.
    failed.stopped = stop(rail, true);
}

void RailSet::stop_again(std::size_t rail) noexcept {
    ChannelRail& failed = rails_[rail];
    failed.stopped = failed.stopped || stop(rail, true);
}

bool RailSet::receives_ended(std::size_t rail, std::int64_t waited) const noexcept {
    const ChannelRail& failed = rails_[rail];
    return failed.last_receive || waited >= last_receive_limit_ns ||
           failed.queue_pair.native() == nullptr ||
           shared_.rails[failed.device]->failure != nullptr;
}

bool RailSet::is_drained(std::size_t rail) const noexcept {
    const ChannelRail& failed = rails_[rail];
    return failed.abandoned || (failed.stopped && failed.queue.idle() &&
                                receives_ended(rail, now_ns() - failed.failed_ns));
}

bool RailSet::is_overdue(std::size_t rail, std::int64_t now) const noexcept {
    const ChannelRail& failed = rails_[rail];
    return (failed.queue.idle() && shared_.rails[failed.device]->failure != nullptr) ||
           now - failed.failed_ns > drain_limit_ns;
}

bool RailSet::abandon(std::size_t rail) noexcept {
    if (!destroy(rail)) {
        return false;
    }
    rails_[rail].abandoned = true;
    for (RdmaTransfer& transfer : all_transfers_) {
        RdmaTransfer::Share& share = transfer.shares[rail];
        if (share.pending != 0) {
            transfer.request->pending -= share.pending;
            transfer.pending -= share.pending;
            share.pending = 0;
            transfer.lost |= 1U << rail;
        }
    }
    return true;
}

bool RailSet::all_used() const noexcept {
    return std::ranges::all_of(rails_,
                               [](const ChannelRail& rail) { return rail.failure == nullptr; });
}

void RailSet::begin_probation(std::size_t rail, QueuePair* pair) noexcept {
    delay_probation(rail);
    ChannelRail& to = rails_[rail];
    if (pair != nullptr) {
        to.queue_pair = std::move(*pair);
        to.queue = SendQueue(shared_.rails[to.device]->send_depth);
        to.last_needed = test_first_count;
    }
    to.connected = true;
    to.aborted = to.stopped = to.last_receive = false;
    to.replaced_ns = to.heard_ns = now_ns();
    to.immediates_posted = to.immediates_confirmed = to.immediates_arrived = test_first_count;
    // Share::number refers to a write on the failed queue pair. Its data has arrived or was posted
    // again, so the number is no longer needed.
    for (RdmaTransfer& transfer : all_transfers_) {
        transfer.shares[rail].has_number = transfer.shares[rail].is_covered = false;
    }
}

void RailSet::delay_probation(std::size_t rail) noexcept {
    ChannelRail& failed = rails_[rail];
    failed.failed_ns = now_ns();
    if (failed.replacements < max_replacements) {
        ++failed.replacements;
    }
}

void RailSet::port_active(std::size_t device) noexcept {
    for (ChannelRail& rail : rails_) {
        rail.replacements = rail.device == device ? 0 : rail.replacements;
    }
}

void RailSet::use(std::size_t rail) noexcept {
    rails_[rail].failure = nullptr;
    speed_ += shared_.rails[rails_[rail].device]->speed;
}

bool RailSet::transfer_completed(std::size_t rail, const RequestState& request,
                                 bool succeeded) noexcept {
    RdmaTransfer* transfer = request.unconfirmed;
    while (transfer != nullptr && transfer->shares[rail].pending == 0) {
        transfer = transfer->next_of_request;
    }
    if (transfer == nullptr) {
        return false;
    }
    --transfer->shares[rail].pending;
    --transfer->pending;
    if (!succeeded) {
        transfer->lost |= 1U << rail;
    }
    if (transfer->request->transfer != transfer) {
        release_if_done(*transfer);
    }
    return true;
}

void RailSet::suspend() noexcept {
    suspended_ = true;
    fast.sends = 0;
    for (ChannelRail& rail : rails_) {
        rail.queue.suspend();
    }
}

void RailSet::resume() noexcept {
    suspended_ = false;
    for (ChannelRail& rail : rails_) {
        rail.queue.resume();
    }
}

void RailSet::fail(int error, const char* reason, const RequestState* culprit, int culprit_error,
                   bool flush_all) noexcept {
    if (set_broken(error, reason, culprit, culprit_error)) {
        stop_all(flush_all);
    }
}

void RailSet::close_by_peer() noexcept {
    if (set_broken(ECONNRESET, "the peer has closed the channel", nullptr, 0)) {
        awaits_acknowledgements_ = true;
        stop_when_acknowledged(false);
    }
}

bool RailSet::drain(bool polled) noexcept {
    if (awaits_acknowledgements_ && !stop_when_acknowledged(polled)) {
        return false;
    }
    const bool late = is_drain_over(polled);
    bool drained = true;
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        const bool idle = rails_[i].queue.idle();
        drained = ((idle && rails_[i].aborted) || ((idle || late) && destroy(i))) && drained;
    }
    return drained;
}

void RailSet::drop_transfers() noexcept {
    while (RdmaTransfer* const transfer = transfers_.pop_front()) {
        transfer->request->transfer = nullptr;
        if (rails_.size() == 1) {
            shared_.transfers.give_back(transfer);
        }
    }
    while (RdmaTransfer* const transfer = all_transfers_.pop_front()) {
        transfer->request->unconfirmed = nullptr;
        shared_.transfers.give_back(transfer);
    }
    ordered_ = 0;
}

void RailSet::copy(std::byte* to, const Header& header, std::span<const std::byte> body) noexcept {
    std::memcpy(to, &header, sizeof header);
    if (!body.empty()) {
        std::memcpy(to + sizeof header, body.data(), body.size());
    }
}

bool RailSet::set_broken(int error, const char* reason, const RequestState* culprit,
                         int culprit_error) noexcept {
    if (broken_ != 0) {
        return false;
    }
    broken_ = error;
    reason_ = reason;
    culprit_ = culprit;
    culprit_error_ = culprit_error;
    failed_ns_ = now_ns();
    fast = {};
    shared_.wake(channel_);
    if (error != EBADF) { // With EBADF, the program itself closes the channel.
        shared_.failed.push_back(&channel_);
        channel_.is_failed = true;
    }
    return true;
}

void RailSet::stop_all(bool flush_all) noexcept {
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        if (works(i)) {
            static_cast<void>(stop(i, flush_all));
        }
    }
}

bool RailSet::stop_when_acknowledged(bool polled) noexcept {
    for (std::size_t i = 0; i < rails_.size() && !is_drain_over(polled); ++i) {
        if (works(i) && rails_[i].queue.awaits_completion()) {
            return false;
        }
    }
    awaits_acknowledgements_ = false;
    failed_ns_ = now_ns();
    stop_all(true);
    return true;
}

bool RailSet::stop(std::size_t rail, bool flush_all) noexcept {
    ChannelRail& stopped = rails_[rail];
    // Until abort() succeeds, the peer can still write by RDMA to the memory of requests.
    // Therefore abort() is called again if it fails, for example with ENOMEM.
    for (int tries = 0; tries < 3 && !stopped.aborted; ++tries) {
        stopped.aborted = static_cast<bool>(attempt([&] { stopped.queue_pair.abort(); }));
    }
    if (!stopped.aborted) {
        return false; // drain() or abandon() destroys the queue pair.
    }
    if (!flush_all && stopped.queue.idle()) {
        return true;
    }
    // Post one more work request. It completes at once with IBV_WC_WR_FLUSH_ERR, because the
    // queue pair is in the error state. When its completion arrives, all earlier work requests
    // have completed, including the unsignaled work requests.
    ibv_send_wr last = make_send({});
    return post(rail, last, nullptr, true);
}

bool RailSet::destroy(std::size_t rail) noexcept {
    ChannelRail& dead = rails_[rail];
    const std::uint32_t number = dead.queue_pair.native()->qp_num;
    if (!attempt([&] { dead.queue_pair.close(); })) {
        return false;
    }
    shared_.rails[dead.device]->queue_pairs.remove(number);
    dead.connected = false;
    dead.aborted = true;
    dead.queue.completed(dead.queue.next() - 1);
    return true;
}

void RailSet::immediate_confirmed(std::size_t rail, std::uint32_t acknowledged) noexcept {
    std::uint32_t& last = rails_[rail].immediates_confirmed;
    if (is_before(last, acknowledged)) {
        last = acknowledged;
    }
}

void RailSet::release_if_done(RdmaTransfer& transfer) noexcept {
    if (transfer.pending != 0 || transfer.lost != 0) {
        return;
    }
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (transfer.shares[i].has_number) {
            immediate_confirmed(i, transfer.shares[i].number);
        }
    }
    RdmaTransfer** at = &transfer.request->unconfirmed;
    while (*at != &transfer) {
        at = &(*at)->next_of_request;
    }
    *at = transfer.next_of_request;
    all_transfers_.remove(&transfer);
    shared_.transfers.give_back(&transfer);
}

std::uint64_t RailSet::part(std::size_t rail, std::uint64_t left,
                            std::uint64_t speed_left) const noexcept {
    const std::uint64_t speed = shared_.rails[rails_[rail].device]->speed;
    if (speed >= speed_left) {
        return left;
    }
    auto part = static_cast<std::uint64_t>(static_cast<double>(left) * static_cast<double>(speed) /
                                           static_cast<double>(speed_left));
    part = (part + share_alignment - 1) / share_alignment * share_alignment;
    return std::min(left, std::max<std::uint64_t>(part, shared_.options.min_fragment));
}

std::uint32_t RailSet::share(RdmaTransfer& transfer, std::uint64_t length) const noexcept {
    std::uint32_t used = 0;
    std::uint32_t count = 0;
    std::uint64_t begin = 0;
    std::uint64_t speed_left = speed_;
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        if (!is_used(i)) [[unlikely]] {
            transfer.shares[i] = {};
            continue;
        }
        const std::uint64_t end = begin + part(i, length - begin, speed_left);
        speed_left -= shared_.rails[rails_[i].device]->speed;
        const bool is_used = end > begin || i == 0;
        transfer.shares[i] = {.begin = begin, .next = begin, .end = end, .unposted = is_used};
        used |= is_used ? 1U << i : 0U;
        count += is_used ? 1 : 0;
        begin = end;
    }
    transfer.immediate.rails = count;
    return used;
}

bool RailSet::advance(RdmaTransfer& transfer) noexcept {
    bool complete = true;
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        RdmaTransfer::Share& share = transfer.shares[i];
        // Skip the share of a failed queue pair: repeat() posts it on the first queue pair instead.
        while (share.unposted && works(i) && rails_[i].queue.has_room(reserve) &&
               post_piece(transfer, i, share)) {
        }
        complete = complete && !share.unposted;
        if (i == 0 && !share.unposted && transfer.keeps_order && !transfer.has_fin) {
            transfer.keeps_order = false;
            --ordered_;
        }
    }
    return complete;
}

bool RailSet::post_piece(RdmaTransfer& transfer, std::size_t rail,
                         RdmaTransfer::Share& share) noexcept {
    TransferPiece piece;
    const std::size_t device = rails_[rail].device;
    const rdmabuf::Transfer rest = {.local_address = transfer.local_address + share.next,
                                    .remote_address = transfer.remote_address + share.next,
                                    .length = share.end - share.next};
    if (rest.length > 0) {
        if (!first_piece(*transfer.memory, transfer.remote, device, rest, max_message_, piece)) {
            fail(ECONNABORTED, "the memory of a request is not registered completely",
                 transfer.request, EFAULT);
            return false;
        }
    } else {
        piece.remote = {.address = transfer.remote_address,
                        .rkey = transfer.remote.regions[0].rkeys[device]};
    }
    const std::span<const ibv_sge> local(&piece.local, rest.length > 0 ? 1 : 0);
    const bool last = share.next + piece.local.length == share.end;
    const bool immediate =
        last && transfer.has_immediate && !(transfer.has_fin && rail == 0) && !share.repeated;
    ibv_send_wr work = transfer.is_read ? make_read(local, piece.remote)
                       : immediate
                           ? make_write_imm(local, piece.remote, transfer.immediate.encode())
                           : make_write(local, piece.remote);
    if (!post(rail, work, transfer.request)) {
        return false;
    }
    if (rails_.size() > 1) {
        ++transfer.shares[rail].pending;
        ++transfer.pending;
        if (immediate && rail != 0) {
            share.has_number = true;
            share.number = ++rails_[rail].immediates_posted;
        } else if (last && rail != 0 && !transfer.is_read) {
            share.is_covered = true;
            share.number = next_immediate(rail);
        }
    }
    share.next += piece.local.length;
    share.unposted = !last;
    return true;
}

} // namespace rdmabuf::transport::detail
