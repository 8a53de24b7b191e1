// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Connects two queue pairs in one process, for examples whose subject is not the connection.

#include <chrono>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>

namespace examples {

/// One end of a connection: a queue pair and its completion queue.
struct End {
    rdmabuf::CompletionQueue cq;
    rdmabuf::QueuePair qp;
    /// The address handle of the other end, set only for SRD queue pairs (EFA). Each request on an
    /// SRD queue pair has `ah` and `peer` as its destination.
    std::optional<rdmabuf::AddressHandle> ah = std::nullopt;
    rdmabuf::QueuePairAddress peer = {};

    /// Posts an RDMA write of @p local to the memory of the other end.
    rdmabuf::CallStatus post_write(const ibv_sge& local, rdmabuf::RemoteAddress remote) const {
        return ah ? qp.post_write_to(local, ah->destination(peer), remote)
                  : qp.post_write(local, remote);
    }

    /// Waits for one completion.
    /// @throws std::runtime_error if the request failed, or if no completion arrives within 10 s
    rdmabuf::WorkCompletion wait() const {
        const auto completion = cq.wait_one(std::chrono::seconds(10));
        if (!completion) {
            throw std::runtime_error("no completion within 10 s");
        }
        if (!rdmabuf::succeeded(*completion)) {
            throw std::runtime_error(rdmabuf::describe(*completion));
        }
        return *completion;
    }
};

/// Creates two queue pairs and connects them with each other. The type of the queue pairs is RC, or
/// SRD on EFA. Two processes would exchange the addresses of the queue pairs by rdmabuf::bootstrap
/// or rdmabuf::cm.
inline std::pair<End, End> connect_loopback(const rdmabuf::ProtectionDomain& pd) {
    using rdmabuf::QueuePairType;
    const bool srd = pd.context().srd().available;
    const auto type =
        srd ? QueuePairType::scalable_reliable_datagram : QueuePairType::reliable_connected;
    const rdmabuf::CompletionQueue left_cq(pd.context());
    const rdmabuf::CompletionQueue right_cq(pd.context());
    auto left =
        rdmabuf::QueuePair::prepare(pd, {.send_cq = left_cq, .recv_cq = left_cq, .type = type});
    auto right =
        rdmabuf::QueuePair::prepare(pd, {.send_cq = right_cq, .recv_cq = right_cq, .type = type});
    const auto left_address = left.address();
    const auto right_address = right.address();
    if (!srd) {
        return {End{left_cq, std::move(left).connect(right_address)},
                End{right_cq, std::move(right).connect(left_address)}};
    }
    // SRD needs an address handle for the peer at both ends, also at the target of RDMA operations.
    return {End{left_cq, std::move(left).activate(), rdmabuf::AddressHandle(pd, right_address, {}),
                right_address},
            End{right_cq, std::move(right).activate(), rdmabuf::AddressHandle(pd, left_address, {}),
                left_address}};
}

} // namespace examples
