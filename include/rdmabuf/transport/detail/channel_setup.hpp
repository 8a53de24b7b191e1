// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/peer_setup.hpp>
#include <rdmabuf/transport/detail/wire_format.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport::detail {

/// Creates the queue pairs of one channel, and connects them to those of the peer. The caller must
/// exchange the Hello structures, which describe the queue pairs of each end.
class RDMABUF_EXPORT ChannelSetup {
  public:
    explicit ChannelSetup(std::shared_ptr<EndpointState> endpoint);
    ChannelSetup(const ChannelSetup&) = delete;
    ChannelSetup& operator=(const ChannelSetup&) = delete;
    ~ChannelSetup();

    /// Creates queue pairs in the INIT state: EndpointOptions::queue_pairs_per_device on device 0,
    /// and as many on each following device. Stops before the first following device that has
    /// failed or whose port is not active; the devices after it are not used either.
    /// @throws Error: the errors of Context::port() and of the constructor of PreparedQueuePair
    void create_queue_pairs();
    /// Returns the Hello that describes the created queue pairs and the limits of the endpoint.
    [[nodiscard]] Hello hello() const;
    /// Checks only the magic number and the protocol version of a Hello.
    static void check_version(const Hello& theirs, const char* function);
    /// Checks a Hello that the peer has sent.
    /// @param function  the function name in the thrown errors
    /// @throws Error EPROTO if the bytes are not a Hello or contain impossible values,
    ///         EPROTONOSUPPORT for another version of the protocol, or the errno value in
    ///         theirs.error if the set-up of the peer has failed
    static void check(const Hello& theirs, const char* function);
    /// Connects the queue pairs, and attaches the new channel to the endpoint.
    /// @param theirs  a Hello for which check() has not thrown
    /// @throws Error: EIO if a device has failed, and the errors of QueuePairAddress::decode(),
    ///         PreparedQueuePair::connect() and EndpointState::attach()
    [[nodiscard]] std::unique_ptr<ChannelState> connect(const Hello& theirs);
    /// Makes the endpoint keep a ConnectedDatagram that arrives for this end of a PreparedChannel
    /// before the channel is connected.
    /// @param secret  identifies this end: PeerSetup::ours
    void keep_datagram(const Handle::Secret& secret) noexcept;
    [[nodiscard]] std::optional<ConnectedDatagram> kept_datagram() const noexcept {
        return end_ ? end_->datagram : std::nullopt;
    }

    [[nodiscard]] const std::shared_ptr<EndpointState>& endpoint() const noexcept {
        return endpoint_;
    }

  private:
    void prepare(const ProtectionDomain& pd, QueuePairOptions options);

    std::shared_ptr<EndpointState> endpoint_;
    std::vector<PreparedQueuePair> prepared_;
    std::uint32_t inline_data_;
    std::optional<PreparedEnd> end_;
};

/// Checks an errno value that the peer has sent, and returns it. Returns EBUSY in place of EAGAIN,
/// because EAGAIN tells callers to wait and try again.
/// @param function  the function name in the thrown error
/// @throws Error EPROTO if the number is not an errno value
[[nodiscard]] int checked_errno(std::uint32_t error, const char* function);

} // namespace rdmabuf::transport::detail
