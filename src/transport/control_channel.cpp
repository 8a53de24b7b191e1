// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/transport/detail/control_channel.hpp>

namespace rdmabuf::transport::detail {

void ControlChannel::add_credits(Header& header) const noexcept {
    header.received = window.received();
    if (returns_eager_credits(header.kind)) {
        header.number = eager_credits.consumed();
    }
}

RailSet::Posted ControlChannel::write_and_send(ibv_send_wr& write, Header header,
                                               std::span<const std::byte> body,
                                               RequestState& request) noexcept {
    add_credits(header);
    const RailSet::Posted posted = rails_.write_and_send(write, header, body, request);
    if (posted == RailSet::Posted::both) {
        credits_sent(header.kind);
    }
    return posted;
}

void ControlChannel::probe() noexcept {
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        // A new queue pair is not probed during its test: the peer may not have connected its own
        // queue pair yet.
        if (rails_.is_used(i)) {
            probe(i);
        }
    }
}

void ControlChannel::probe(std::size_t rail) noexcept {
    const SendQueue& queue = rails_[rail].queue;
    if (queue.has_room() && (queue.idle() || !queue.all_signaled())) {
        ibv_send_wr work = make_write({}, probe_target(rail));
        rails_.post(rail, work, nullptr, true);
    }
}

bool ControlChannel::send_close() noexcept {
    // The close message is signaled, because a later work request may never be acknowledged:
    // the peer moves its queue pairs to the error state when it has received the close message.
    return rails_.queue().has_room() && send({.kind = Kind::close}, {}, nullptr, true);
}

} // namespace rdmabuf::transport::detail
