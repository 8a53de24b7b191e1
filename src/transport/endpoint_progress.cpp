// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <rdmabuf/transport/detail/endpoint_state.hpp>

namespace rdmabuf::transport::detail {

namespace {

MessageInfo info_of(const UnexpectedMessage& message) noexcept {
    return {.tag = message.tag,
            .length = static_cast<std::size_t>(message.length),
            .channel = message.channel->number()};
}

} // namespace

[[gnu::always_inline]] inline void EndpointState::receive_completed(
    SharedRail& rail, const WorkCompletion& completion) noexcept {
    ReceiveReplenisher::Receive& receive = rail.replenisher.find(completion.wr_id);
    const QueuePairTable::Entry* queue_pair = &rail.queue_pairs.first(completion.qp_num);
    if (queue_pair->number != completion.qp_num) [[unlikely]] {
        queue_pair = &rail.queue_pairs.find(completion.qp_num);
    }
    bool reusable = true;
    if (completion.status == IBV_WC_SUCCESS && completion.opcode == IBV_WC_RECV &&
        queue_pair->is_first) [[likely]] {
        reusable = queue_pair->channel->message_arrived(completion, receive.bytes());
    } else if (queue_pair->channel != nullptr) {
        other_receive_completed(*queue_pair, completion);
    }
    if (reusable) [[likely]] {
        shared.repost(rail, receive);
    }
}

[[gnu::always_inline]] inline bool EndpointState::poll(std::size_t device) noexcept {
    std::array<WorkCompletion, 16> completions; // NOLINT(*-member-init): poll writes it
    SharedRail& rail = *shared.rails[device];
    const int count = rail.cq.poll(completions);
    if (count <= 0) {
        if (count < 0) [[unlikely]] {
            shared.fail(rail, "ibv_poll_cq failed on a device of this side");
        }
        return false;
    }
    const WorkCompletion* completion = completions.data();
    const WorkCompletion* const end = completion + count;
    do {
        if (rail.replenisher.contains(completion->wr_id)) [[likely]] {
            receive_completed(rail, *completion);
        } else {
            complete(rail, *completion);
        }
    } while (++completion != end);
    return true;
}

[[gnu::always_inline]] inline bool EndpointState::poll() noexcept {
    bool any = poll(0);
    if (shared.several_rails || shared.rail_failed) [[unlikely]] {
        any = poll_other_devices() || any;
    }
    return any;
}

bool EndpointState::poll_all() noexcept {
    constexpr unsigned max_polls = 4096;
    unsigned polls = 0;
    while (polls < max_polls && poll()) {
        ++polls;
    }
    return polls != 0;
}

bool EndpointState::progress() noexcept {
    const OneThread one_thread(user_);
    if (!creator_.is_current()) [[unlikely]] {
        return false;
    }
    const bool any = poll();
    if (!any) {
        post_all_receives();
    }
    if (!shared.busy.empty()) [[unlikely]] {
        advance_channels(!any);
    }
    if (++calls_ == 0) [[unlikely]] {
        check(now_ns());
    }
    return any;
}

inline void EndpointState::report(RequestState& state, Completion& completion) noexcept {
    completion = {.done = true,
                  .error = {state.error, std::system_category()},
                  .bytes = static_cast<std::size_t>(state.bytes),
                  .tag = state.tag,
                  .channel = state.channel_number == any_channel ? 0 : state.channel_number,
                  .context = state.context};
    if (state.channel != nullptr) {
        state.channel->give_back(state);
    } else {
        shared.give_back(state);
    }
}

Completion EndpointState::test_any(std::uint32_t channel, Request& request,
                                   bool progressed) noexcept {
    const OneThread one_thread(user_);
    RequestState* const state = shared.request(request.index);
    if (state == nullptr || request.channel != channel) {
        return failed(request.index == Request::empty_index ? ESTALE : EINVAL);
    }
    if (!state->in_use || state->generation != request.generation) {
        return failed(ESTALE);
    }
    if (!state->done && !progressed) {
        progress();
    }
    Completion completion;
    if (state->done) {
        if (state->context != nullptr) {
            shared.completed.remove(state);
        }
        report(*state, completion);
        request = {};
    }
    return completion;
}

bool EndpointState::is_done(const Request& request) const noexcept {
    const RequestState* const state = shared.request(request.index);
    return state != nullptr && state->in_use && state->generation == request.generation &&
           state->done;
}

std::optional<std::uint32_t> EndpointState::poll_failed() noexcept {
    for (ChannelLinks& links : shared.failed) {
        const auto& channel = static_cast<const ChannelState&>(links);
        // Skip a channel whose messages are held back: its handshake has not finished, so the
        // program does not know the channel yet.
        if (!shared.matcher.is_held(&channel)) {
            shared.failed.remove(&links);
            links.is_failed = false;
            return channel.number();
        }
    }
    return std::nullopt;
}

std::size_t EndpointState::poll_completions(std::span<Completion> completions) noexcept {
    const OneThread one_thread(user_);
    std::size_t count = 0;
    // In a child process, the channels of completed requests may be destroyed already.
    while (creator_.is_current() && count < completions.size() && !shared.completed.empty()) {
        report(*shared.completed.pop_front(), completions[count++]);
    }
    return count;
}

UnexpectedMessage* EndpointState::find_message(const ChannelState* channel, Tag tag,
                                               Tag mask) noexcept {
    UnexpectedMessage* message = shared.matcher.find_message(channel, tag, mask);
    while (message != nullptr && message->kind == Kind::rts && message->channel->broken() != 0) {
        shared.matcher.remove(*message);
        UnexpectedMessage::destroy(message);
        message = shared.matcher.find_message(channel, tag, mask);
    }
    return message;
}

std::optional<MessageInfo> EndpointState::probe(const ChannelState* channel, Tag tag,
                                                Tag mask) noexcept {
    progress();
    const UnexpectedMessage* const message = find_message(channel, tag, mask);
    return message == nullptr ? std::nullopt : std::optional(info_of(*message));
}

std::optional<MatchedMessage> EndpointState::mprobe(const ChannelState* channel, Tag tag,
                                                    Tag mask) noexcept {
    progress();
    UnexpectedMessage* const message = find_message(channel, tag, mask);
    if (message == nullptr) {
        return std::nullopt;
    }
    shared.matcher.claim(*message);
    return MatchedMessage{info_of(*message), message->claim};
}

int EndpointState::cancel(std::uint32_t channel, const Request& request) noexcept {
    const OneThread one_thread(user_);
    RequestState* const state = shared.request(request.index);
    if (request.channel != channel || state == nullptr || state->type() == RequestType::send) {
        return EINVAL;
    }
    if (!state->in_use || state->generation != request.generation) {
        return ESTALE;
    }
    if (state->done) {
        return EALREADY;
    }
    if (state->type() == RequestType::one_sided) {
        if (state->channel->broken() != 0) {
            return EALREADY; // The request ends with the error of the channel.
        }
        return state->channel->cancel(static_cast<OneSidedRequest&>(*state));
    }
    auto& receive = static_cast<ReceiveRequest&>(*state);
    if (receive.channel == nullptr) {
        shared.matcher.remove(receive);
        shared.complete(receive, ECANCELED);
        return 0;
    }
    return receive.channel->cancel(receive);
}

int EndpointState::lease(LeasedMemory& memory, std::uintptr_t address, std::size_t length,
                         Access access) noexcept {
    RegistrationCache::Lease found = cache.load()->find(address, length, access);
    if (!found) {
        auto made = attempt([&] { return cache.load()->acquire(address, length, access); });
        if (!made) {
            registration_error = made.error_info();
            return made.error();
        }
        found = *std::move(made);
    }
    memory.endpoint = this;
    memory.address = address;
    memory.length = length;
    memory.access = access;
    memory.rails = pds.size();
    use_lease(memory, std::move(found), registering);
    if (!memory.host && !shared.needs_loopback) {
        if (const auto made = attempt([this] { shared.create_loopback(); }); !made) {
            registration_error = made.error_info();
            return made.error();
        }
    }
    return 0;
}

void EndpointState::advance_channels(bool polled) noexcept {
    for (ChannelLinks& links : shared.busy) {
        auto& channel = static_cast<ChannelState&>(links);
        if (channel.rails().recovering() != 0) {
            read_async_events(); // RailSet::is_drained() waits for IBV_EVENT_QP_LAST_WQE_REACHED.
        }
        channel.advance(polled);
        if (!channel.has_work()) {
            shared.busy.remove(&links);
            links.is_busy = false;
        }
    }
}

bool EndpointState::poll_other_devices() noexcept {
    bool any = false;
    for (std::size_t device = 1; device < shared.rails.size(); ++device) {
        any = poll(device) || any;
    }
    if (shared.rail_failed) {
        leave_out_failed_devices();
    }
    return any;
}

void EndpointState::post_all_receives() noexcept {
    for (const auto& rail : shared.rails) {
        if (!rail->replenisher.empty()) {
            shared.post_receives(*rail);
        }
    }
}

void EndpointState::complete(SharedRail& rail, const WorkCompletion& completion) noexcept {
    const WorkId id = WorkId::decode(completion.wr_id);
    if (id.work == Work::loopback || id.work == Work::loopback_receive) {
        loopback_completed(rail, id, completion);
        return;
    }
    if (id.work == Work::setup_send || id.work == Work::setup_receive) [[unlikely]] {
        setup_completed(id, completion);
        return;
    }
    const QueuePairTable::Entry& queue_pair = rail.queue_pairs.find(completion.qp_num);
    if (queue_pair.channel != nullptr) {
        queue_pair.channel->send_completed(queue_pair.rail, id, completion.status);
    }
}

void EndpointState::other_receive_completed(const QueuePairTable::Entry& queue_pair,
                                            const WorkCompletion& completion) noexcept {
    ChannelState& channel = *queue_pair.channel;
    if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
        channel.receive_failed(queue_pair.rail, completion.status);
    } else if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        channel.immediate_arrived(queue_pair.rail, immediate(completion), completion.byte_len);
    } else {
        channel.fail(EPROTO, "the peer has sent a message by another queue pair than the first");
    }
}

void EndpointState::loopback_completed(SharedRail& shared_rail, const WorkId& id,
                                       const WorkCompletion& completion) noexcept {
    if (!shared_rail.loopback ||
        completion.qp_num != shared_rail.loopback->queue_pair.native()->qp_num) {
        return; // Some providers keep the completions of destroyed queue pairs.
    }
    shared_rail.tested = false;
    ibv_wc_status status = completion.status;
    Loopback& loopback = *shared_rail.loopback;
    RequestState* const request = shared.request(id.number);
    if (status != IBV_WC_SUCCESS) {
        loopback.failed = true;
        // If a flush read cannot access its memory, the loopback queue pair enters the error
        // state. All its work requests are then flushed: the read itself, those that were
        // posted later, and those that were executed and not acknowledged yet. If they all
        // belong to one request, this request fails, unless the device has failed
        // (QueuePair::state() throws then). Otherwise all are repeated, one at a time.
        const bool first = !std::exchange(loopback.cause_known, true);
        if (status == IBV_WC_RETRY_EXC_ERR) {
            // While the port is down, work requests are repeated without limit.
            // IBV_EVENT_PORT_ERR may arrive later than the failure, so a few failures in
            // succession are also repeated without this event.
            constexpr unsigned most_repetitions = 3;
            if (shared_rail.port_down || ++shared_rail.undelivered <= most_repetitions) {
                status = IBV_WC_WR_FLUSH_ERR;
            }
        } else if (first && status == IBV_WC_WR_FLUSH_ERR && loopback.owner == WorkId::no_request) {
            shared_rail.suspects = loopback.queue.in_flight();
        } else if (first && status == IBV_WC_WR_FLUSH_ERR &&
                   attempt([&] { static_cast<void>(loopback.queue_pair.state()); })) {
            shared_rail.suspects = 0; // The cause is found.
            status = IBV_WC_GENERAL_ERR;
        }
    } else {
        shared_rail.undelivered = 0;
        const bool is_suspect = id.work == Work::loopback && request != nullptr && request->suspect;
        shared_rail.suspects -= std::min(shared_rail.suspects, std::uint32_t{is_suspect});
    }
    if (id.work == Work::loopback_receive) {
        --loopback.receives;
    } else {
        loopback.queue.completed(id.sequence);
    }
    if (request != nullptr && request->in_use && request->channel != nullptr) {
        ChannelState& channel = *request->channel;
        channel.loopback_completed(*request, status);
    }
    if (status != IBV_WC_SUCCESS) {
        loopback_failed_ = true;
    }
}

int EndpointState::receive_any(const BufferRef& buffer, Tag tag, Tag mask, Request& request,
                               void* context) noexcept {
    const OneThread one_thread(user_);
    if (!creator_.is_current()) {
        return EBADF;
    }
    if (const int error = buffer.check_receive(this); error != 0) {
        return error;
    }
    UnexpectedMessage* const message = find_message(nullptr, tag, mask);
    if (message == nullptr && shared.rails[0]->failure != nullptr) {
        return EIO;
    }
    ReceiveRequest* const taken = shared.receives.take();
    if (taken == nullptr) {
        return ENOMEM;
    }
    shared.begin(*taken, nullptr, any_channel, buffer, request, context);
    taken->from_any = true;
    taken->tag = tag;
    taken->mask = mask;
    if (message != nullptr) {
        ChannelState& channel = *message->channel;
        channel.adopt(*taken);
        channel.receive_unexpected(*taken, *message);
        return 0;
    }
    shared.matcher.post(*taken);
    return 0;
}

} // namespace rdmabuf::transport::detail
