// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/channel_setup.hpp>

#include "transport/queue_pair_options.hpp"
#include "transport/unlocked.hpp"

namespace rdmabuf::transport::detail {
namespace {

using rdmabuf::detail::check_zero;
using rdmabuf::detail::raise;

/// The largest errno value in Linux.
constexpr std::uint32_t max_errno = 4095;

} // namespace

int checked_errno(std::uint32_t error, const char* function) {
    if (error > max_errno) {
        raise(EPROTO, function, "the peer reports an impossible errno value");
    }
    return error == EAGAIN ? EBUSY : static_cast<int>(error);
}

ChannelSetup::ChannelSetup(std::shared_ptr<EndpointState> endpoint)
    : endpoint_(std::move(endpoint)), inline_data_(endpoint_->options.inline_data) {}

ChannelSetup::~ChannelSetup() {
    if (end_) {
        endpoint_->remove(*end_);
    }
}

void ChannelSetup::keep_datagram(const Handle::Secret& secret) noexcept {
    end_.emplace(PreparedEnd{.secret = secret});
    endpoint_->add(*end_);
}

Hello ChannelSetup::hello() const {
    const EndpointOptions& options = endpoint_->options;
    SharedState& shared = endpoint_->shared;
    Hello hello = {
        .rails = static_cast<std::uint16_t>(prepared_.size() / options.queue_pairs_per_device),
        .eager_limit = options.eager_limit,
        .unexpected_limit = options.unexpected_limit,
        .notification_limit = options.notification_limit,
        .depth = options.depth,
        .keep_socket = options.keep_sockets ? 1U : 0U,
        .queue_pairs_per_device = options.queue_pairs_per_device,
        .max_message_size = endpoint_->max_message,
        .probe_address = reinterpret_cast<std::uintptr_t>(shared.pool.probe_line())};
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
        const std::size_t device = i / options.queue_pairs_per_device;
        hello.probe_rkeys[device] = shared.rails[device]->probe_line.rkey();
        hello.addresses[i] = prepared_[i].address().encode();
    }
    return hello;
}

void ChannelSetup::check_version(const Hello& theirs, const char* function) {
    if (theirs.magic != Hello::expected_magic) {
        raise(EPROTO, function, "the other end does not use the transport of rdmabuf");
    }
    if (theirs.version != Hello::current_version) {
        raise(EPROTONOSUPPORT, function,
              "the peer's transport is of another version: use the same release of rdmabuf on both "
              "sides");
    }
}

void ChannelSetup::check(const Hello& theirs, const char* function) {
    check_version(theirs, function);
    check_zero(checked_errno(theirs.error, function), "ibv_create_qp",
               "the peer could not create its queue pairs; its own error has the details");
    constexpr std::uint32_t least_limit = 4096;
    if (theirs.rails == 0 || theirs.rails > max_rails || theirs.queue_pairs_per_device == 0 ||
        theirs.queue_pairs_per_device > max_queue_pairs_per_device ||
        std::size_t{theirs.rails} * theirs.queue_pairs_per_device > max_channel_rails ||
        theirs.unexpected_limit < least_limit || theirs.notification_limit < least_limit ||
        theirs.depth == 0 || theirs.max_message_size == 0) {
        raise(EPROTO, function, "the limits that the peer sent are impossible");
    }
}

void ChannelSetup::create_queue_pairs() {
    const EndpointOptions& all = endpoint_->options;
    const auto& rails = endpoint_->shared.rails;
    prepared_.reserve(rails.size() * all.queue_pairs_per_device);
    const auto has_active_port = [&](std::size_t device) {
        return rails[device]->pd.context().port(all.port).state == IBV_PORT_ACTIVE;
    };
    // A channel uses device 0, and the next devices until one has failed or its port is down. The
    // devices after that one are not used, even if they work.
    std::size_t devices = 1;
    while (devices < rails.size() && endpoint_->works(devices) &&
           // If `port_down` is set, query the port, because `port_down` may be out of date: see
           // EndpointOptions::read_async_events.
           (!rails[devices]->port_down || has_active_port(devices))) {
        ++devices;
    }
    const Unlocked unlocked(all.mutex);
    for (std::size_t device = 0; device < devices; ++device) {
        const std::uint32_t inline_data = inline_data_;
        for (std::uint32_t i = 0; i < all.queue_pairs_per_device; ++i) {
            try {
                prepare(rails[device]->pd,
                        channel_queue_pair_options(*rails[device], all, i, inline_data_));
            } catch (const Error&) {
                if (device == 0 || has_active_port(device)) {
                    throw;
                }
                // The port has gone down since the check above, so the channel uses only the
                // devices before this one. Restore the length of inline data, which prepare() has
                // reduced.
                inline_data_ = inline_data;
                const auto kept = static_cast<std::ptrdiff_t>(device * all.queue_pairs_per_device);
                prepared_.erase(prepared_.begin() + kept, prepared_.end());
                return;
            }
        }
    }
}

void ChannelSetup::prepare(const ProtectionDomain& pd, QueuePairOptions options) {
    // If creating the queue pair fails, the reason may be the length of inline data: bnxt_re has 96
    // bytes, which is enough for most messages of the protocol. The queue pair is created again
    // with shorter inline data, and then without any.
    while (true) {
        try {
            prepared_.emplace_back(pd, options);
            return;
        } catch (const Error&) {
            if (options.max_inline_data == 0) {
                throw;
            }
            inline_data_ = options.max_inline_data = options.max_inline_data > 96 ? 96 : 0;
        }
    }
}

std::unique_ptr<ChannelState> ChannelSetup::connect(const Hello& theirs) {
    SharedState& shared = endpoint_->shared;
    const std::uint32_t ours = endpoint_->options.queue_pairs_per_device;
    const std::uint32_t used = std::min(ours, theirs.queue_pairs_per_device);
    const std::size_t devices = std::min<std::size_t>(prepared_.size() / ours, theirs.rails);
    std::vector<ChannelRail> rails;
    rails.reserve(devices * used);
    // Enlarge the completion queues, which can fail, before a queue pair is connected: the peer may
    // send messages to a connected queue pair, and their receive buffers are lost when the queue
    // pair is destroyed. attach() reserves the entries again, which then succeeds.
    shared.reserve_completions(devices, used);
    const auto attach = [&] {
        constexpr std::uint64_t longest = std::uint64_t{1} << 31U;
        auto channel = std::make_unique<ChannelState>(
            shared, endpoint_.get(), EndpointState::next_number(), std::move(rails), theirs,
            inline_data_,
            static_cast<std::uint32_t>(
                std::min({endpoint_->max_message, theirs.max_message_size, longest})));
        endpoint_->attach(*channel);
        return channel;
    };
    try {
        for (std::size_t device = 0; device < devices; ++device) {
            if (const char* const failure = shared.rails[device]->failure; failure != nullptr) {
                throw Error(EIO, "ibv_modify_qp", failure);
            }
            for (std::size_t i = 0; i < used; ++i) {
                const QueuePairAddress address =
                    QueuePairAddress::decode(
                        theirs.addresses[theirs.queue_pairs_per_device * device + i])
                        .value();
                const Unlocked unlocked(endpoint_->options.mutex);
                rails.emplace_back(std::move(prepared_[ours * device + i]).connect(address), device,
                                   shared.rails[device]->send_depth);
            }
        }
    } catch (...) {
        shared.release_completions(devices, used);
        // The peer may have sent messages to the queue pairs that are connected already. If these
        // queue pairs were destroyed at once, the completions of the messages would be lost, and
        // their receive buffers would never be posted again. So attach the channel and let
        // abandon() end it: the endpoint then destroys the queue pairs later; see
        // RailSet::receives_ended().
        static_cast<void>(attempt([&] {
            if (!rails.empty()) {
                const std::unique_ptr<ChannelState> channel = attach();
                static_cast<void>(attempt([&] { channel->hold_messages(); }));
                endpoint_->abandon(*channel);
            }
        }));
        throw;
    }
    prepared_.clear();
    shared.release_completions(devices, used);
    // The peer may send messages before the handshake has finished. Attach the channel to the
    // endpoint now, so that the channel receives these messages.
    return attach();
}

} // namespace rdmabuf::transport::detail
