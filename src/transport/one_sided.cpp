// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/transport/detail/one_sided.hpp>

namespace rdmabuf::transport::detail {

void OneSided::start(OneSidedRequest& request) noexcept {
    request.posted = false;
    request.whole_list = request.list;
    if (rails_.size() > 1 && (!request.list.empty() || request.operation == Operation::fence)) {
        request.striped = true;
        request.pending_on = {};
        striped_.push_back(&request);
    }
    queued_.push_back(&request);
    advance();
}

bool OneSided::put_now(OneSidedRequest& request, const ibv_sge& data, RemoteAddress remote,
                       bool inline_data) noexcept {
    if (!queued_.empty() || rails_.has_transfers() || !rails_.can_send()) {
        return false;
    }
    ibv_sge entry = data;
    ibv_send_wr work = make_write(std::span<const ibv_sge>(&entry, 1), remote);
    work.send_flags = inline_data ? unsigned{IBV_SEND_INLINE} : 0U;
    if (request.notifies) {
        return put_and_notify(request, work);
    }
    if (!rails_.post(0, work, &request)) {
        return false;
    }
    request.posted = true;
    return true;
}

void OneSided::advance() noexcept {
    while (!queued_.empty() && rails_.broken() == 0) {
        OneSidedRequest& request = *queued_.front();
        if (!begin(request)) {
            break;
        }
        queued_.remove(&request);
        if (request.notifies) {
            notifying_.push_back(&request);
        } else {
            posted_all(request);
        }
    }
    while (!notifying_.empty() && rails_.broken() == 0 && notify(*notifying_.front())) {
        OneSidedRequest& request = *notifying_.pop_front();
        request.notifies = false;
        posted_all(request);
    }
}

void OneSided::settled(OneSidedRequest& request) noexcept {
    if (request.pending == 0 && request.transfer == nullptr && request.unconfirmed == nullptr &&
        request.posted && !request.notifies && request.lost == 0) {
        if (request.striped) {
            request.striped = false;
            striped_.remove(&request);
        }
        shared_.complete(request, request.error);
    }
}

int OneSided::cancel(OneSidedRequest& request) noexcept {
    if (!request.list.empty() && request.list.data() == request.whole_list.data() &&
        request.operand == 0) { // Nothing is posted yet.
        queued_.remove(&request);
        request.list = request.whole_list = {};
        request.notifies = false;
        request.error = ECANCELED;
        posted_all(request);
        return 0;
    }
    const bool has_entries = request.list.size() > 1;
    // If the write is unsignaled, only the completion of the notification shows that the write has
    // completed. The notification can then not be cancelled.
    if (!has_entries && (!request.notifies || request.unsignaled)) {
        return EALREADY;
    }
    if (has_entries) {
        if (request.striped) {
            request.whole_list =
                request.whole_list.first(request.whole_list.size() - request.list.size() + 1);
        }
        if (repeating_ == &request) {
            repeating_ = nullptr;
        }
        request.list = request.list.first(1);
    }
    request.notifies = false;
    request.error = ECANCELED;
    const OneSidedRequest* waiting = notifying_.front();
    while (waiting != nullptr && waiting != &request) {
        waiting = Requests::next(waiting);
    }
    if (waiting != nullptr) { // Only the notification is not posted yet.
        if (waiting == notifying_.front() && fences_.rails != 0) {
            // The fences with this sequence number are already posted. The next notification needs
            // its own fences.
            used_since_notification_ |= fences_.rails;
            next_number();
        }
        notifying_.remove(&request);
        posted_all(request);
    }
    return 0;
}

void OneSided::completed(OneSidedRequest& request, std::size_t rail, bool succeeded) noexcept {
    --request.pending_on[rail];
    if (!succeeded) {
        request.lost |= 1U << rail;
    }
}

void OneSided::abandon(std::size_t rail) noexcept {
    for (OneSidedRequest& request : striped_) {
        std::uint32_t& pending = request.pending_on[rail];
        if (pending != 0) {
            request.pending -= pending;
            pending = 0;
            request.lost |= 1U << rail;
        }
    }
}

void OneSided::failure_agreed(std::size_t rail, std::uint32_t arrived) noexcept {
    for (OneSidedRequest& request : striped_) {
        if (request.operation == Operation::put && (request.lost >> rail & 1U) != 0 &&
            !RailSet::is_before(arrived, request.covered_by[rail])) {
            request.lost &= ~(1U << rail);
            settled(request);
        }
    }
}

bool OneSided::repeat_lost() noexcept {
    // Post the lists first: a fence must follow all writes that were started before the fence.
    for (const bool fences : {false, true}) {
        for (OneSidedRequest& request : striped_) {
            if (request.lost == 0 || fences != (request.operation == Operation::fence)) {
                continue;
            }
            if (!(fences ? post_fence_read(request, 0) : repeat_list(request))) {
                return false;
            }
            request.lost = 0;
            settled(request);
        }
    }
    return true;
}

void OneSided::forget_fences(std::size_t rail) noexcept {
    used_since_notification_ &= ~(1U << rail);
    fences_.rails &= ~(1U << rail);
}

void OneSided::begin_probation(std::size_t rail) noexcept {
    recovered_ &= ~(1U << rail);
    if (is_before(fences_arrived_[rail], last_notification_)) {
        fences_arrived_[rail] = last_notification_;
    }
}

void OneSided::stop() noexcept {
    queued_.clear();
    notifying_.clear();
    repeating_ = nullptr;
    while (OneSidedRequest* const request = striped_.pop_front()) {
        request->striped = false;
        request->lost = 0;
    }
}

bool OneSided::fences_arrived(NotificationFences wanted) const noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (((wanted.rails & ~recovered_) >> i & 1U) != 0 &&
            is_before(fences_arrived_[i], wanted.number)) {
            return false;
        }
    }
    return true;
}

void OneSided::notification_reported(std::uint32_t number) noexcept {
    // Update the entries of queue pairs that had no fence for a long time. Otherwise their old
    // sequence numbers would be compared wrongly after a wraparound.
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (is_before(fences_arrived_[i], number)) {
            fences_arrived_[i] = number;
        }
    }
}

bool OneSided::begin(OneSidedRequest& request) noexcept {
    switch (request.operation) {
        case Operation::put:
        case Operation::get:
            return request.list.empty() ? begin_transfer(request)
                                        : post_list(request, request.list, request.operand, false);
        case Operation::fetch_add:
        case Operation::compare_swap:
            return begin_atomic(request);
        case Operation::fence:
            return begin_fence(request);
        case Operation::flush:
            break; // ChannelState::flush() starts flushes.
    }
    return true;
}

bool OneSided::begin_transfer(OneSidedRequest& request) noexcept {
    if (request.transfer != nullptr) {
        const std::uint32_t used = rails_.start(*request.transfer, request.bytes);
        if (request.operation == Operation::put) {
            used_since_notification_ |= used;
        }
    }
    return true;
}

bool OneSided::post_list(OneSidedRequest& request, std::span<const TransferEntry>& entries,
                         std::uint64_t& done, bool repeats) noexcept {
    constexpr std::uint32_t batch = 32;
    // Set below.
    std::array<ibv_send_wr, batch> works; // NOLINT(*-member-init)
    std::array<ibv_sge, batch> local;     // NOLINT(*-member-init)
    const std::uint32_t share = repeats ? batch : share_of_list(entries.size(), batch);
    ListPosition at = {.entries = entries, .done = done};
    while (at.skip_empty()) {
        const ListPosition from = at;
        const std::size_t rail = repeats ? 0 : next_rail();
        const std::uint32_t room = std::min(share, rails_[rail].queue.room(RailSet::reserve));
        std::uint32_t count = 0;
        while (count < room && at.skip_empty()) {
            const TransferEntry& entry = at.entries.front();
            ibv_send_wr* const work = works.data() + count;
            if (!take_work(request, at, rail, local[count], *work)) {
                return false;
            }
            work->next = work + 1;
            ++count;
            if (at.done == 0) {
                count += take_alike(request, at, entry, rail,
                                    std::span(local).subspan(count, room - count), work + 1);
            }
        }
        if (count == 0) {
            return false;
        }
        works[count - 1].next = nullptr;
        const std::size_t posted = rails_.post_chain(rail, works[0], request);
        if (posted == 0) {
            return false;
        }
        list_posted(request, rail, posted == count);
        if (posted < count) {
            at = from;
            for (std::size_t i = 0; i < posted && at.skip_empty(); ++i) {
                static_cast<void>(take_work(request, at, rail, local[0], works[0]));
            }
            // The last posted work request is not signaled, so another one must follow. If the list
            // is cancelled, cancel() keeps the next entry for this purpose. Therefore skip entries
            // of 0 bytes.
            static_cast<void>(at.skip_empty());
        }
        entries = at.entries;
        done = at.done;
        if (posted < count) {
            return false;
        }
        next_rail_ += repeats ? 0 : 1;
    }
    entries = {};
    return true;
}

std::uint32_t OneSided::share_of_list(std::size_t entries, std::uint32_t most) const noexcept {
    std::size_t used = 0;
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        used += rails_.is_used(i) ? 1 : 0;
    }
    return static_cast<std::uint32_t>(
        std::clamp<std::size_t>((entries + used - 1) / used, 1, most));
}

void OneSided::list_posted(OneSidedRequest& request, std::size_t rail, bool signaled) noexcept {
    if (request.operation == Operation::put) {
        used_since_notification_ |= 1U << rail;
    }
    request.covered_by[rail] = rails_.next_immediate(rail);
    if (signaled) {
        count_striped(request, rail);
    } else if (rail != 0) {
        request.lost |= 1U << rail;
    }
}

bool OneSided::take_work(OneSidedRequest& request, ListPosition& at, std::size_t rail,
                         ibv_sge& local, ibv_send_wr& work) noexcept {
    const TransferEntry& entry = at.entries.front();
    const MemoryState& memory = *entry.memory->state();
    const std::size_t device = rails_[rail].device;
    const rdmabuf::Transfer rest = {
        .local_address =
            memory.device_address(reinterpret_cast<std::uintptr_t>(entry.address)) + at.done,
        .remote_address = entry.remote->iova() + entry.offset + at.done,
        .length = entry.length - at.done};
    TransferPiece piece;
    if (!first_piece(memory, entry.remote->table(), device, rest, rails_.max_message(), piece)) {
        rails_.fail(ECONNABORTED, "the memory of a list is not registered completely", &request,
                    EFAULT);
        return false;
    }
    local = piece.local;
    const std::span<const ibv_sge> data(&local, 1);
    work = request.operation == Operation::get ? make_read(data, piece.remote)
                                               : make_write(data, piece.remote);
    at.done += piece.local.length;
    if (at.done == entry.length) {
        at.done = 0;
        at.entries = at.entries.subspan(1);
    }
    return true;
}

std::uint32_t OneSided::take_alike(const OneSidedRequest& request, ListPosition& at,
                                   const TransferEntry& like, std::size_t rail,
                                   std::span<ibv_sge> local, ibv_send_wr* works) const noexcept {
    const MemoryState& memory = *like.memory->state();
    const RemoteTable& remote = like.remote->table();
    const std::size_t device = rails_[rail].device;
    if (memory.rail(device).size() != 1 || remote.chunks != 1) {
        return 0;
    }
    const std::uint32_t lkey = memory.rail(device).front().lkey;
    const std::uint32_t rkey = remote.regions[0].rkeys[device];
    const std::uint64_t to_iova = memory.device_address(0);
    const std::uint64_t remote_iova = like.remote->iova();
    const std::uint64_t max_message = rails_.max_message();
    const Memory* const same_memory = like.memory;
    const RemoteMemory* const same_remote = like.remote;
    const ibv_wr_opcode opcode =
        request.operation == Operation::get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
    ibv_send_wr* work = works;
    ibv_sge* sge = local.data();
    for (const TransferEntry& entry : at.entries.first(std::min(at.entries.size(), local.size()))) {
        if (entry.memory != same_memory || entry.remote != same_remote ||
            entry.length - 1 >= max_message) {
            break; // other memory, 0 bytes, or too long for one work request
        }
        sge->addr = reinterpret_cast<std::uintptr_t>(entry.address) + to_iova;
        sge->length = static_cast<std::uint32_t>(entry.length);
        sge->lkey = lkey;
        work->next = work + 1;
        work->sg_list = sge++;
        work->num_sge = 1;
        work->opcode = opcode;
        work->send_flags = 0;
        work->wr.rdma.remote_addr = remote_iova + entry.offset;
        work->wr.rdma.rkey = rkey;
        ++work;
    }
    const auto count = static_cast<std::uint32_t>(work - works);
    at.entries = at.entries.subspan(count);
    return count;
}

std::size_t OneSided::next_rail() noexcept {
    while (!rails_.is_used(next_rail_ % rails_.size())) {
        ++next_rail_;
    }
    return next_rail_ % rails_.size();
}

void OneSided::count_striped(OneSidedRequest& request, std::size_t rail) noexcept {
    if (rail != 0) {
        ++request.pending_on[rail];
    }
}

bool OneSided::repeat_list(OneSidedRequest& request) noexcept {
    if (repeating_ != &request) {
        repeating_ = &request;
        repeat_list_ = request.whole_list;
        repeat_done_ = 0;
    }
    if (!post_list(request, repeat_list_, repeat_done_, true)) {
        return false;
    }
    repeating_ = nullptr;
    return true;
}

bool OneSided::begin_atomic(OneSidedRequest& request) noexcept {
    if (!rails_.can_send()) {
        return false;
    }
    const std::uint64_t at = request.buffer.device_address();
    const LocalChunk* chunk = rdmabuf::detail::find_chunk(request.buffer.memory->rail(0), at);
    ibv_sge entry = {.addr = at, .length = sizeof(std::uint64_t), .lkey = chunk->lkey};
    const std::span<const ibv_sge> local(&entry, 1);
    ibv_send_wr work =
        request.operation == OneSidedRequest::Operation::fetch_add
            ? make_fetch_add(local, request.remote, request.operand)
            : make_compare_swap(local, request.remote, request.compare, request.operand);
    return rails_.post(0, work, &request);
}

bool OneSided::begin_fence(OneSidedRequest& request) noexcept {
    // The fence must follow all earlier writes. If a queue pair has failed, its unfinished writes
    // must be posted again first.
    if (rails_.has_transfers() || rails_.recovering() != 0) {
        return false;
    }
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        if (rails_.is_used(i) && !rails_[i].queue.has_room(RailSet::reserve)) {
            return false;
        }
    }
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        if (rails_.is_used(i) && !post_fence_read(request, i)) {
            return false;
        }
    }
    return true;
}

bool OneSided::post_fence_read(OneSidedRequest& request, std::size_t rail) noexcept {
    if (!rails_[rail].queue.has_room(RailSet::reserve)) {
        return false;
    }
    ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(shared_.pool.scratch_line()),
                     .length = 1,
                     .lkey = shared_.rails[rails_[rail].device]->bounce_buffers.lkey()};
    ibv_send_wr work = make_read(std::span<const ibv_sge>(&entry, 1), control_.probe_target(rail));
    if (!rails_.post(rail, work, &request)) {
        return false;
    }
    count_striped(request, rail);
    return true;
}

bool OneSided::notify(OneSidedRequest& request) noexcept {
    // The notification must be posted after all earlier transfers, so that it arrives after
    // their data.
    if (rails_.has_transfers() || !rails_.can_send() ||
        !control_.notification_credits.available(request.notification_size) || !fence() ||
        !control_.send(notification_header(), notification_of(request), &request)) {
        return false;
    }
    notification_sent(request);
    return true;
}

bool OneSided::put_and_notify(OneSidedRequest& request, ibv_send_wr& write) noexcept {
    // The notification cannot be posted together with the write if it must wait: for an earlier
    // notification, for credits, for a fence, or for room in the send queue.
    if (!notifying_.empty() || used_since_notification_ >> 1U != 0 || !rails_.can_send(2) ||
        !control_.notification_credits.available(request.notification_size)) {
        return false;
    }
    switch (
        control_.write_and_send(write, notification_header(), notification_of(request), request)) {
        case RailSet::Posted::none:
            return false;
        case RailSet::Posted::write:
            request.unsignaled = true;
            notifying_.push_back(&request);
            return true;
        case RailSet::Posted::both:
            break;
    }
    notification_sent(request);
    request.notifies = false;
    request.posted = true;
    return true;
}

void OneSided::notification_sent(const OneSidedRequest& request) noexcept {
    control_.notification_credits.sent(request.notification_size);
    next_number();
}

void OneSided::next_number() noexcept {
    fences_ = {.number = (fences_.number + 1) & Immediate::max_request, .rails = 0};
}

bool OneSided::fence() noexcept {
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        // An earlier call for the same notification may already have posted the fence. Writes
        // after this fence only need a fence for the next notification.
        if (((used_since_notification_ & ~fences_.rails) >> i & 1U) == 0) {
            continue;
        }
        // A failed queue pair needs no fence: the peer waits for the message `rail_recovered`
        // instead.
        if (rails_.is_used(i)) {
            if (!rails_[i].queue.has_room()) {
                return false;
            }
            const Immediate immediate = {.fence = true, .request = fences_.number};
            ibv_send_wr work = make_write_imm({}, control_.probe_target(i), immediate.encode());
            if (!rails_.post_fence(i, work)) {
                return false;
            }
        }
        used_since_notification_ &= ~(1U << i);
        fences_.rails |= 1U << i;
    }
    return true;
}

void OneSided::posted_all(OneSidedRequest& request) noexcept {
    request.posted = true;
    settled(request);
}

} // namespace rdmabuf::transport::detail
