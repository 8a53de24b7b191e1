// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/handshake.hpp>
#include <rdmabuf/transport/detail/protocol.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

/// The listening socket, and the connections that are not channels yet.
///
/// A connection is unproven until its ConnectorProof has arrived and its secret is right. For an
/// unproven connection nothing is sent, and no queue pair, buffer or key exists. At most
/// max_unproven of them exist; when one more arrives, the oldest is closed. So connections that
/// send nothing cannot hold up a peer that has the handle.
class RDMABUF_EXPORT ListenerState {
  public:
    static constexpr std::size_t max_unproven = 64;

    /// @param host  as Endpoint::listen()
    /// @throws Error what listening fails with
    [[nodiscard]] static std::unique_ptr<ListenerState> open(
        std::shared_ptr<EndpointState> endpoint, const std::string& host);
    ListenerState(const ListenerState&) = delete;
    ListenerState& operator=(const ListenerState&) = delete;
    ~ListenerState();

    [[nodiscard]] const Handle& handle() const noexcept { return handle_; }

    /// Accepts connections, and advances all handshakes as far as is possible without waiting.
    /// @param finished  the handshake that is ready, when the result is `ready`
    /// @param error   filled in when the result is `failed`
    [[nodiscard]] SetupProgress advance(std::unique_ptr<Handshake>& finished,
                                        ErrorInfo& error) noexcept;
    /// Waits until advance() can go on, or until @p timeout is over; a negative one does not end.
    void wait(std::chrono::milliseconds timeout) const noexcept;

  private:
    ListenerState(std::shared_ptr<EndpointState> endpoint, UniqueFd socket);

    struct Unproven {
        UniqueFd socket;
        std::int64_t deadline = 0;
        ConnectorProof proof = {};
        std::size_t received = 0;
    };
    enum class Verdict : std::uint8_t { waiting, accepted, dropped };

    void accept_connections();
    void check_proofs();
    [[nodiscard]] Verdict check_proof(Unproven& peer) const;

    std::shared_ptr<EndpointState> endpoint_;
    UniqueFd socket_;
    Handle handle_;
    /// In the order in which they connected.
    std::vector<Unproven> unproven_;
    std::vector<std::unique_ptr<Handshake>> handshakes_;
};

} // namespace rdmabuf::transport::detail
