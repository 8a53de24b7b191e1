// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <rdmabuf/transport/detail/channel_state.hpp>

namespace rdmabuf::transport::detail {

void ChannelState::settled(RequestState& request) noexcept {
    switch (request.type()) {
        case RequestType::send:
            rendezvous_sender_.send_settled(static_cast<SendRequest&>(request));
            break;
        case RequestType::receive:
            if (request.pending == 0 && request.transfer == nullptr &&
                request.unconfirmed == nullptr) {
                rendezvous_receiver_.read_completed(static_cast<ReceiveRequest&>(request));
                wake();
            }
            break;
        case RequestType::one_sided:
            one_sided_.settled(static_cast<OneSidedRequest&>(request));
            break;
    }
}

void ChannelState::send_completed(std::size_t rail, const WorkId& id,
                                  ibv_wc_status status) noexcept {
    rails_[rail].heard = true;
    rails_.completed(rail, id.sequence);
    // Completions that arrive after end_requests() are ignored: their device was considered dead.
    // On a failed channel, completions with errors are ignored, too, because end_requests() later
    // ends their requests. Other completions are processed, because requests can still succeed; see
    // RailSet::close_by_peer().
    if (ended_ || (rails_.broken() != 0 && status != IBV_WC_SUCCESS)) {
        return;
    }
    if (id.work == Work::fence) {
        if (status == IBV_WC_SUCCESS) {
            rails_.fence_completed(rail, id.number);
        } else {
            explain(rail, status, nullptr);
        }
        return;
    }
    RequestState* const request =
        id.number != WorkId::no_request ? shared_.request(id.number) : nullptr;
    if (request != nullptr && id.work == Work::remote) {
        --request->pending;
        if (rails_.size() > 1 &&
            !rails_.transfer_completed(rail, *request, status == IBV_WC_SUCCESS) && rail != 0) {
            one_sided_.completed(static_cast<OneSidedRequest&>(*request), rail,
                                 status == IBV_WC_SUCCESS);
        }
    }
    if (status != IBV_WC_SUCCESS) {
        explain(rail, status, request);
    }
    if (request == nullptr || (rails_.broken() != 0 && !rails_.may_succeed())) [[unlikely]] {
        return;
    }
    settled(*request);
}

void ChannelState::advance(bool polled) noexcept {
    if (!loopback_queue_.empty()) {
        start_loopback();
    }
    if (rails_.broken() != 0) {
        if (!ended_ && rails_.drain(polled)) {
            rails_.release_buffers();
            end_requests(rails_.broken());
        }
        return;
    }
    if (setup_ != nullptr) {
        if (setup_->datagram_due) {
            send_connected();
        }
        if (!setup_->peer_connected) {
            return;
        }
    }
    if (recovery_.has_work()) [[unlikely]] {
        recovery_.advance([this](RequestState& request) { settled(request); });
    }
    start_queued();
    if (rails_.has_transfers()) {
        rails_.advance([this](RequestState& request) { posted(request); });
        // Some messages and one-sided requests wait until all earlier transfers are posted. Try to
        // start them again, because transfers were posted above.
        start_queued();
    }
    control_.send_credits();
}

void ChannelState::start_queued() noexcept {
    if (rendezvous_sender_.has_work()) {
        rendezvous_sender_.advance();
    }
    if (rendezvous_receiver_.has_work()) {
        rendezvous_receiver_.advance([this](ReceiveRequest& receive) { finish_receive(receive); });
    }
    if (!queued_.empty()) {
        send_queued();
    }
    if (one_sided_.has_work()) {
        one_sided_.advance();
    }
}

void ChannelState::posted(RequestState& request) noexcept {
    if (request.type() == RequestType::send) {
        rendezvous_sender_.send_posted(static_cast<SendRequest&>(request));
    }
    settled(request);
}

void ChannelState::await_peer(std::unique_ptr<PeerSetup> setup,
                              const std::optional<ConnectedDatagram>& kept) noexcept {
    setup_ = std::move(setup);
    setup_->peer_connected = kept && kept->from == setup_->theirs;
    if (!setup_->peer_connected) {
        rails_.suspend();
    }
    send_connected();
}

void ChannelState::send_connected() noexcept {
    setup_->datagram_due = !setup_->queue_pair.send(
        setup_->path, setup_->peer,
        {.needs_reply = static_cast<std::uint16_t>(setup_->peer_connected ? 0 : 1),
         .to = setup_->theirs,
         .from = setup_->ours});
    if (setup_->datagram_due) {
        wake();
    }
}

void ChannelState::connected_arrived(const ConnectedDatagram& datagram) noexcept {
    if (datagram.from != setup_->theirs || rails_.broken() != 0) {
        return; // The sender is not the peer of this channel, or the channel has failed.
    }
    if (!setup_->peer_connected) {
        setup_->peer_connected = true;
        rails_.resume();
    }
    setup_->datagram_due = datagram.needs_reply != 0;
    wake();
}

void ChannelState::explain(std::size_t rail, ibv_wc_status status,
                           const RequestState* culprit) noexcept {
    if (!rails_.works(rail)) {
        wake(); // RailRecovery continues after the last completion of a failed queue pair.
        return;
    }
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
        case IBV_WC_LOC_QP_OP_ERR:
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
            fail(ECONNABORTED, "this side's device could not access the memory of a request",
                 culprit, EFAULT);
            return;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
        case IBV_WC_REM_OP_ERR:
            fail(ECONNABORTED, "the peer's device rejected the access of a request", culprit,
                 EACCES);
            return;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
        case IBV_WC_RESP_TIMEOUT_ERR:
            rails_.leave_out(rail, EHOSTUNREACH,
                             shared_.rails[rails_[rail].device]->port_down
                                 ? "the port of this side's device is not active"
                                 : "the peer's device does not respond");
            return;
        case IBV_WC_WR_FLUSH_ERR:
            // A work request was flushed because its queue pair is in the error state. This end did
            // not cause the error: the peer sent an invalid request, or its process ended.
            rails_.leave_out(rail, ECONNRESET,
                             "the peer has closed the channel, or it has violated the protocol");
            return;
        default:
            rails_.leave_out(rail, EIO, "the device of this side failed");
            return;
    }
}

void ChannelState::check(std::int64_t now) noexcept {
    if (waits_for_peer() && rails_.broken() == 0) {
        if (now > setup_->deadline_ns) {
            fail(ETIMEDOUT,
                 "the peer of a PreparedChannel has not connected in the time of "
                 "EndpointOptions::handshake");
        } else {
            send_connected();
        }
        return;
    }
    if (!rails_.all_used() && rails_.broken() == 0) {
        recovery_.check(now);
        probation_.check(*this, now);
        wake();
    }
    const bool heard = std::exchange(heard_, false) || rails_[0].heard;
    for (std::size_t i = 0; i < rails_.size(); ++i) {
        ChannelRail& rail = rails_[i];
        if (std::exchange(rail.heard, false) || !rail.queue.awaits_completion() ||
            !rails_.works(i)) {
            rail.heard_ns = now;
        } else if (now - rail.heard_ns >= shared_.detection_ns()) {
            shared_.rails[rail.device]->silent = true;
        }
    }
    if (heard || in_flight_ == 0) {
        probed_ns_ = now;
    } else if (rails_.broken() == 0 && now - probed_ns_ >= to_ns(shared_.options.heartbeat)) {
        probed_ns_ = now;
        control_.probe();
    }
}

bool ChannelState::socket_event() noexcept {
    if (rails_.broken() != 0) {
        return false;
    }
    std::uint8_t byte = 0;
    const ssize_t received = ::recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    const int error = received < 0 ? errno : 0;
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) {
        return true;
    }
    if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) {
        // TCP keepalive cannot reach the other machine. The network of the RDMA devices may still
        // work, so keepalive writes test this network. If the writes fail, the channel fails.
        control_.probe();
    } else if (received > 0 && byte == goodbye) {
        peer_closed();
    } else if (received > 0) {
        protocol_error("the peer has sent data on the socket after the handshake");
    } else {
        fail(ECONNRESET, "the peer's process has ended, or the peer has closed the channel");
    }
    return false;
}

void ChannelState::say_goodbye() noexcept {
    if (socket_) {
        static_cast<void>(
            ::send(socket_.get(), &goodbye, sizeof goodbye, MSG_DONTWAIT | MSG_NOSIGNAL));
    }
}

void ChannelState::peer_closed() noexcept {
    peer_closed_ = true;
    rails_.close_by_peer();
}

void ChannelState::end_requests(int error) noexcept {
    ended_ = true;
    if (socket_ && rails_.broken() != EHOSTUNREACH) {
        // Shut the socket down, so that the peer fails its channel with ECONNRESET at once, without
        // waiting for an error of its device. After EHOSTUNREACH, the socket stays open: the
        // channel of the peer must end with EHOSTUNREACH, too, when its device cannot reach this
        // side.
        ::shutdown(socket_.get(), SHUT_WR);
    }
    const std::pair<const RequestState*, int> culprit = rails_.culprit();
    rails_.drop_transfers();
    queued_.clear();
    rendezvous_sender_.stop();
    rendezvous_receiver_.stop();
    one_sided_.stop();
    const auto end = [&](RequestState& request) {
        if (request.channel == this && !request.done) {
            if (request.transfer != nullptr) {
                // Only a one-sided request that was not started still has an RdmaTransfer here.
                // drop_transfers() has given back the transfers that were started.
                shared_.transfers.give_back(std::exchange(request.transfer, nullptr));
            }
            shared_.complete(request, &request == culprit.first ? culprit.second : error);
        }
    };
    shared_.sends.for_each(end);
    shared_.one_sided.for_each([&](OneSidedRequest& request) {
        if (!request.uses_loopback()) { // Otherwise it ends later: the queue pair still works.
            end(request);
        }
    });
    shared_.receives.for_each([&](ReceiveRequest& request) {
        if (request.uses_loopback()) {
            return; // Ends later, too.
        }
        if (request.channel == this && !request.done &&
            request.stage == ReceiveRequest::Stage::posted) {
            shared_.matcher.remove(request);
        }
        end(request);
    });
    shared_.matcher.drop(
        this, [](const UnexpectedMessage& message) { return message.kind == Kind::rts; });
}

} // namespace rdmabuf::transport::detail
