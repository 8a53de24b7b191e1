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
    /// The number of the local port to send from; the first port is 1.
    std::uint8_t port = 1;
    /// The index of the source GID in the GID table of the local port.
    std::uint8_t gid_index = 0;
    std::uint8_t service_level = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 64;
    /// The flow label of the GRH, 20 bits. For RoCE v2, drivers compute the UDP source port from
    /// the flow label. Switches use the UDP source port to choose one of several equal paths.
    std::uint32_t flow_label = 0;
    /// The maximum rate at which the NIC sends packets; IBV_RATE_MAX means no limit. For RoCE, most
    /// drivers ignore this value.
    ibv_rate static_rate = IBV_RATE_MAX;
    /// The low bits of the source LID, on InfiniBand only. If the local port has several LIDs (its
    /// LMC is not 0), these bits select one LID.
    std::uint8_t src_path_bits = 0;
};

/// An address handle, which contains the address vector of a peer's port. UD and SRD queue pairs
/// need an address handle to send. Objects can be moved but not copied. An address handle keeps its
/// protection domain alive. See ibv_create_ah(3).
class RDMABUF_EXPORT AddressHandle {
  public:
    /// Creates an address handle for the port to which the address @p peer belongs.
    /// @throws Error
    ///   - EINVAL: the device has no such port or GID index
    ///   - EHOSTUNREACH, ETIMEDOUT: the kernel cannot resolve the peer's IP address (RoCE)
    ///   - EBADF: @p pd was closed, released or moved from
    AddressHandle(const ProtectionDomain& pd, const QueuePairAddress& peer,
                  const AddressHandleOptions& options);

    /// Queries the address handle number (EFA only). When an SRD queue pair receives a message from
    /// this peer, WorkCompletion::slid contains the number. All address handles of one protection
    /// domain for the same GID have the same number. See efadv_query_ah(3).
    /// @throws Error EOPNOTSUPP if the device is not an EFA device or libefa is not loaded; EBADF
    ///         if this object was closed, released or moved from
    [[nodiscard]] std::uint16_t number() const;

    /// Returns the queue pair @p peer as the destination of a send request. @p peer must be a queue
    /// pair of the port for which this address handle was created. The result points to this
    /// address handle, which must outlive the request.
    [[nodiscard]] Destination destination(const QueuePairAddress& peer) const noexcept {
        return {.ah = native(), .queue_pair = peer.number, .qkey = peer.qkey};
    }

    [[nodiscard]] ibv_ah* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must destroy the returned ibv_ah.
    [[nodiscard]] ibv_ah* release() noexcept { return handle_.release(); }
    /// Destroys the address handle.
    /// @throws Error with the errno of ibv_destroy_ah(3); this object then still owns the handle.
    void close() { detail::close_handle(handle_); }

  private:
    detail::unique_handle<ibv_ah, detail::DestroyAh, ProtectionDomain> handle_;
};

namespace detail {
/// Returns the address vector with which packets reach @p peer. ibv_create_ah() takes the result,
/// and ibv_modify_qp() takes it when a queue pair is connected.
[[nodiscard]] RDMABUF_EXPORT ibv_ah_attr make_ah_attr(const QueuePairAddress& peer,
                                                      const AddressHandleOptions& options) noexcept;
} // namespace detail

} // namespace rdmabuf
