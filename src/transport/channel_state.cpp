// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {

ChannelState::~ChannelState() {
    shared_.matcher.drop(this, [](const UnexpectedMessage&) { return true; });
    shared_.matcher.release(this);
    if (is_failed) {
        shared_.failed.remove(this);
    }
    while (!notifications_.empty()) {
        drop_notification();
    }
}

std::optional<std::uint64_t> ChannelState::advertised_receive(Tag tag) noexcept {
    const CtsRing::Entry* const entry =
        queued_.empty() && broken() == 0 ? rendezvous_sender_.advertised(tag) : nullptr;
    return entry == nullptr ? std::nullopt : std::optional(entry->length);
}

void ChannelState::receive_failed(std::size_t rail, ibv_wc_status status) noexcept {
    if (status == IBV_WC_WR_FLUSH_ERR) {
        rails_.leave_out(rail, ECONNRESET,
                         "a receive was flushed: the peer has violated the protocol");
    } else {
        fail(EPROTO, "the peer has sent a message that is longer than a receive buffer");
    }
}

bool ChannelState::all_acknowledged() noexcept {
    if (can_post() || waits_for_peer() || rails_.recovering() != 0 || !rails_.queue().idle()) {
        return false;
    }
    for (std::size_t i = 1; i < rails_.size(); ++i) {
        if (!rails_[i].queue.is_completed(rails_[i].last_needed)) {
            return false;
        }
    }
    return true;
}

void ChannelState::signal_all() noexcept {
    if (!rails_.queue().all_signaled()) {
        control_.probe(0);
    }
}

bool ChannelState::send_close() noexcept {
    rails_.fast.sends = 0; // Later sends call send_any(), which checks refusal().
    return control_.send_close();
}

void ChannelState::give_up() noexcept {
    if (!ended_) {
        end_requests(EIO);
    }
}

void ChannelState::give_back(RequestState& request) noexcept {
    --in_flight_;
    shared_.give_back(request);
}

void ChannelState::adopt(ReceiveRequest& receive) noexcept {
    receive.channel = this;
    receive.channel_number = number_;
    shared_.set_deadline(receive);
    count_request();
}

std::uint32_t ChannelState::eager_limit(std::uint32_t ours, std::uint32_t theirs,
                                        std::uint32_t max_message) noexcept {
    constexpr std::uint32_t header = sizeof(Header);
    return std::min({ours, theirs, max_message > header ? max_message - header : 0});
}

int ChannelState::check_transfer(const BufferRef& buffer, const RemoteMemory& remote,
                                 std::uint64_t offset, Access access) const noexcept {
    if (const int error = refusal(); error != 0) {
        return error;
    }
    if (const int error = buffer.check(endpoint_); error != 0) {
        return error;
    }
    if (remote.table().rails < rails_.devices()) {
        return EINVAL;
    }
    if (offset > remote.length() || buffer.length > remote.length() - offset) {
        return ERANGE;
    }
    // All operations except an RDMA write store data in the local buffer.
    return has(remote.access(), access) &&
                   (access == Access::remote_write || buffer.allows(Access::local_write))
               ? 0
               : EACCES;
}

void ChannelState::count_request() noexcept {
    ++in_flight_;
    if (full()) {
        rails_.fast.sends = 0;
    }
}

void ChannelState::set_notification(OneSidedRequest& request, std::span<const std::byte> bytes,
                                    bool notifies) noexcept {
    request.notifies = notifies;
    request.notification_size = static_cast<std::uint16_t>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), request.notification.begin());
}

void ChannelState::set_fast_arrivals() noexcept {
    rails_.fast.arrivals =
        broken() != 0 ? 0 : std::min(eager_.limit() + 1, control_.eager_credits.room());
}

void ChannelState::drop_notification() noexcept {
    Notification* const first = notifications_.pop_front();
    const std::size_t size = sizeof(Notification) + first->size;
    first->~Notification();
    shared_.blocks.give_back(first, size);
}

} // namespace rdmabuf::transport::detail
