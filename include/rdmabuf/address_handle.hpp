// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair_address.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DestroyAh {
    static constexpr const char* name = "ibv_destroy_ah";
    static int call(ibv_ah* ah) noexcept;
};
} // namespace detail

struct AddressHandleOptions {
    /// The local port to send from.
    std::uint8_t port = 1;
    /// The local entry of the port's GID table to send with.
    std::uint8_t gid_index = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The flow label of the GRH, 20 bits. For RoCE v2, drivers compute the UDP source port from
    /// the flow label, and switches choose among equal paths by that port.
    std::uint32_t flow_label = 0;
    /// The maximum rate of the packets; IBV_RATE_MAX for no limit. Most drivers ignore it for RoCE.
    ibv_rate static_rate = IBV_RATE_MAX;
    /// InfiniBand: the low bits of the source LID, for a port with several LIDs (LMC is not 0).
    std::uint8_t src_path_bits = 0;
};

/// The way to a peer's port, for UD and SRD queue pairs. Moves only; holds its protection domain.
/// ibv_create_ah(3).
class RDMABUF_EXPORT AddressHandle {
  public:
    /// @throws Error EINVAL for a port or GID index that is not there, EHOSTUNREACH or ETIMEDOUT
    /// when
    ///         the peer's address does not resolve (RoCE).
    AddressHandle(const ProtectionDomain& pd, const QueuePairAddress& peer,
                  const AddressHandleOptions& options);

    /// The number of this address handle on EFA. Completions of messages that SRD queue pairs
    /// receive from this port have it in WorkCompletion::slid. Address handles of one protection
    /// domain for one GID have the same number. efadv_query_ah(3).
    /// @throws Error EOPNOTSUPP if the device is not an EFA device or libefa is not loaded
    [[nodiscard]] std::uint16_t number() const;

    /// The queue pair @p peer, on the port to which this address handle leads.
    [[nodiscard]] Destination destination(const QueuePairAddress& peer) const noexcept {
        return {.ah = native(), .queue_pair = peer.number, .qkey = peer.qkey};
    }

    [[nodiscard]] ibv_ah* native() const noexcept { return handle_.get(); }
    /// The caller destroys it from now on.
    [[nodiscard]] ibv_ah* release() noexcept { return handle_.release(); }
    /// @throws Error what ibv_destroy_ah(3) says; it stays owned.
    void close() { detail::close_handle(handle_); }

  private:
    detail::unique_handle<ibv_ah, detail::DestroyAh, ProtectionDomain> handle_;
};

namespace detail {
/// The address vector to @p peer, as address handles and connections need it.
[[nodiscard]] RDMABUF_EXPORT ibv_ah_attr make_ah_attr(const QueuePairAddress& peer,
                                                      const AddressHandleOptions& options) noexcept;
} // namespace detail

} // namespace rdmabuf
