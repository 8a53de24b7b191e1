// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/transport/detail/checksum.hpp>
#include <rdmabuf/transport/detail/clock.hpp>
#include <rdmabuf/transport/detail/peer_setup.hpp>
#include <rdmabuf/transport/prepared_channel.hpp>

#include "transport/random_secret.hpp"

namespace rdmabuf::transport {
namespace {

using detail::Hello;
using rdmabuf::detail::raise;

} // namespace

ChannelAddress::ChannelAddress(const Hello& hello,
                               const QueuePairAddress& setup_queue_pair) noexcept
    : hello_(hello), setup_queue_pair_(setup_queue_pair.encode()) {
    check_ = checksum(); // NOLINT(*-prefer-member-initializer): covers the other members
}

std::uint64_t ChannelAddress::checksum() const noexcept {
    return detail::checksum(bytes().first<wire_size - sizeof check_>());
}

Result<ChannelAddress> ChannelAddress::decode(std::span<const std::byte> bytes) noexcept {
    return attempt([&] {
        ChannelAddress address;
        if (!bytes.empty()) {
            std::memcpy(&address, bytes.data(), std::min(bytes.size(), wire_size));
        }
        // An address of another protocol version can have another size. Therefore the version is
        // checked before the size.
        detail::ChannelSetup::check_version(address.hello_, "decode");
        if (bytes.size() < wire_size) {
            raise(EMSGSIZE, "decode",
                  "the address is truncated: it has " + std::to_string(bytes.size()) + " of " +
                      std::to_string(wire_size) + " bytes");
        }
        if (address.check_ != address.checksum()) {
            raise(EPROTO, "decode", "the address was modified in transit: its checksum is wrong");
        }
        detail::ChannelSetup::check(address.hello_, "decode");
        return address;
    });
}

Result<PreparedChannel> PreparedChannel::create(
    std::shared_ptr<detail::EndpointState> endpoint) noexcept {
    return attempt([&] {
        auto setup = std::make_unique<detail::ChannelSetup>(std::move(endpoint));
        setup->create_queue_pairs();
        Hello hello = setup->hello();
        hello.secret = detail::random_secret();
        const QueuePairAddress& address = setup->endpoint()->setup_queue_pair().address();
        setup->keep_datagram(hello.secret);
        return PreparedChannel(std::move(setup), ChannelAddress(hello, address));
    });
}

Result<Channel> PreparedChannel::connect(const ChannelAddress& peer) && noexcept {
    return attempt([&] {
        const std::unique_ptr<detail::ChannelSetup> setup = std::move(setup_);
        if (setup == nullptr) {
            rdmabuf::detail::raise_closed("connect", "PreparedChannel");
        }
        const Hello& theirs = peer.hello();
        detail::ChannelSetup::check(theirs, "connect");
        if (theirs.secret == address_.hello().secret) {
            raise(EINVAL, "connect", "the address is the one of this end, not of the peer");
        }
        detail::EndpointState& endpoint = *setup->endpoint();
        detail::SetupQueuePair& queue_pair = endpoint.setup_queue_pair();
        const QueuePairAddress remote = QueuePairAddress::decode(peer.setup_queue_pair()).value();
        auto state = std::make_unique<detail::PeerSetup>(detail::PeerSetup{
            .queue_pair = queue_pair,
            .ours = address_.hello().secret,
            .theirs = theirs.secret,
            .path = queue_pair.path_to(remote),
            .peer = remote,
            .deadline_ns = detail::now_ns() + detail::to_ns(endpoint.options.handshake)});
        std::unique_ptr<detail::ChannelState> channel = setup->connect(theirs);
        channel->await_peer(std::move(state), setup->kept_datagram());
        return Channel(setup->endpoint(), std::move(channel));
    });
}

} // namespace rdmabuf::transport
