// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/detail/channel_setup.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>

namespace rdmabuf::transport {

/// The address of a PreparedChannel. It contains the data that the other end needs to connect to
/// this PreparedChannel. A program transfers the bytes of an address to one peer by any means, for
/// example MPI, PMI, etcd or a job launcher.
///
/// An address must be kept secret. A process that has the bytes can connect in place of the
/// intended peer. Such a process can send messages to this end, and write to receive buffers whose
/// rkeys this end sends to its peer. Transfer addresses only over a connection that others can
/// neither read nor modify.
class RDMABUF_EXPORT ChannelAddress {
  public:
    /// The size of an address in bytes; the wire format is the memory layout.
    static constexpr std::size_t wire_size =
        sizeof(detail::Hello) + QueuePairAddress::wire_size + sizeof(std::uint64_t);

    [[nodiscard]] std::span<const std::byte, wire_size> bytes() const noexcept {
        return std::as_bytes(std::span<const ChannelAddress, 1>(this, 1)).first<wire_size>();
    }
    /// Decodes the bytes of an address. Only the first wire_size bytes are used, because some
    /// launchers append padding. The bytes may come from an untrusted peer.
    /// @return an address, or an error: EPROTO for bytes that are not an address, contain
    ///         impossible values or were modified in transit; EPROTONOSUPPORT for an address of
    ///         another version of this library; EMSGSIZE for an address that is truncated after its
    ///         version
    [[nodiscard]] static Result<ChannelAddress> decode(std::span<const std::byte> bytes) noexcept;

    // Only PreparedChannel calls the following functions.

    /// @param setup_queue_pair  the address of the SetupQueuePair of the endpoint, a UD queue pair
    ChannelAddress(const detail::Hello& hello, const QueuePairAddress& setup_queue_pair) noexcept;
    [[nodiscard]] const detail::Hello& hello() const noexcept { return hello_; }
    [[nodiscard]] std::span<const std::byte> setup_queue_pair() const noexcept {
        return setup_queue_pair_;
    }

  private:
    ChannelAddress() noexcept = default;
    /// Returns the checksum of all bytes of the address that stand before check_.
    [[nodiscard]] std::uint64_t checksum() const noexcept;

    detail::Hello hello_{};
    std::array<std::byte, QueuePairAddress::wire_size> setup_queue_pair_{};
    std::uint64_t check_ = 0;
};
static_assert(sizeof(ChannelAddress) == ChannelAddress::wire_size &&
              ChannelAddress::wire_size <= 1024);
static_assert(std::is_trivially_copyable_v<ChannelAddress>);

/// One end of a channel, whose queue pairs are created but not connected yet. Two ends become a
/// channel without a socket, without a listener, and without waiting for each other: each program
/// prepares an end, sends its address() to the other program, and calls connect() with the address
/// that it receives.
///
///     PreparedChannel prepared = endpoint.prepare_channel().value();
///     ChannelAddress theirs = exchange(prepared.address()); // by the program's own means
///     Channel channel = std::move(prepared).connect(theirs).value();
///
/// A PreparedChannel can be moved but not copied. It may outlive its Endpoint. Its address can be
/// used for one connection only, and only while the PreparedChannel or the channel that it became
/// exists.
class RDMABUF_EXPORT PreparedChannel {
  public:
    [[nodiscard]] const ChannelAddress& address() const noexcept { return address_; }

    /// Connects this end to the end that has the address @p peer. The two ends may call connect()
    /// in any order. The call does not wait for the peer: the program can start requests at once.
    /// The channel transmits them after both ends are connected. Until then, both programs must
    /// make progress at least ten times per EndpointOptions::heartbeat, even if they have started
    /// no requests; see Endpoint::descriptor(). Each end sends datagrams on a UD queue pair, until
    /// it knows that the other end is connected; see detail::PeerSetup. A datagram that has arrived
    /// before this call is kept. If the peer has not connected within EndpointOptions::handshake,
    /// the channel and its requests fail with ETIMEDOUT. This happens, for example, if the peer has
    /// ended, or if another end has already connected to the address of the peer. If the peer has
    /// called connect() and has ended before this call, requests can fail with EHOSTUNREACH
    /// instead.
    ///
    /// The channel has no socket, as with EndpointOptions::keep_sockets = false. The failure of a
    /// peer process is detected when the next work request, for example a keepalive write, fails.
    /// @return the channel, or an error. After an error, this object can only be destroyed.
    ///   - EINVAL: @p peer is the address of this object
    ///   - EPROTO: @p peer contains impossible values
    ///   - EBADF: connect() was already called
    ///   - EIO: a device of this end has failed
    ///   - ENOSPC: the device does not support a completion queue that is large enough
    ///   - the errno value with which creating an AddressHandle or PreparedQueuePair::connect()
    ///     failed
    [[nodiscard]] Result<Channel> connect(const ChannelAddress& peer) && noexcept;

    // Only Endpoint calls this function.
    [[nodiscard]] static Result<PreparedChannel> create(
        std::shared_ptr<detail::EndpointState> endpoint) noexcept;

  private:
    PreparedChannel(std::unique_ptr<detail::ChannelSetup> setup,
                    const ChannelAddress& address) noexcept
        : setup_(std::move(setup)), address_(address) {}

    std::unique_ptr<detail::ChannelSetup> setup_;
    ChannelAddress address_;
};

} // namespace rdmabuf::transport
