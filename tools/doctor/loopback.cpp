// SPDX-License-Identifier: BSD-3-Clause
#include "loopback.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>

#include <rdmabuf/registration.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// Returns the number of the first active port. @throws Error ENETDOWN if no port is active
std::uint8_t active_port(const Context& context) {
    const unsigned ports = context.attributes().port_count();
    for (unsigned port = 1; port <= ports; ++port) {
        const auto number = static_cast<std::uint8_t>(port);
        if (context.port(number).state == IBV_PORT_ACTIVE) {
            return number;
        }
    }
    throw Error(ENETDOWN, "ibv_query_port", "no port of the device is active");
}

} // namespace

FailedRequest::FailedRequest(const WorkCompletion& completion)
    : Error(EIO, "ibv_poll_cq", describe(completion)), status_(completion.status) {}

Loopback::Loopback(const ProtectionDomain& pd)
    : Loopback(CompletionQueue(pd.context(), {.depth = depth}), pd) {}

Loopback::Loopback(const CompletionQueue& cq, const ProtectionDomain& pd)
    : Loopback(cq, connect(pd, cq)) {}

Loopback::Loopback(CompletionQueue cq, Ends ends)
    : cq_(std::move(cq)),
      initiator_(std::move(ends.initiator)),
      target_(std::move(ends.target)),
      handle_(std::move(ends.handle)),
      target_address_(ends.target_address) {}

Loopback::Ends Loopback::connect(const ProtectionDomain& pd, const CompletionQueue& cq) {
    const bool srd = pd.context().srd().available;
    QueuePairOptions options{.send_cq = cq, .recv_cq = cq};
    options.type =
        srd ? QueuePairType::scalable_reliable_datagram : QueuePairType::reliable_connected;
    options.max_send_wr = depth;
    options.max_recv_wr = 1;
    options.port = active_port(pd.context());
    PreparedQueuePair initiator = QueuePair::prepare(pd, options);
    PreparedQueuePair target = QueuePair::prepare(pd, options);
    const QueuePairAddress initiator_address = initiator.address();
    const QueuePairAddress target_address = target.address();
    if (!srd) {
        return {.initiator = std::move(initiator).connect(target_address),
                .target = std::move(target).connect(initiator_address),
                .handle = std::nullopt,
                .target_address = target_address};
    }
    // Both queue pairs have the same GID, so one address handle serves both directions.
    AddressHandle handle(pd, target_address, initiator.connection().path);
    return {.initiator = std::move(initiator).activate(),
            .target = std::move(target).activate(),
            .handle = std::move(handle),
            .target_address = target_address};
}

void Loopback::post_write(const ibv_sge& local, RemoteAddress remote) const {
    const CallStatus status =
        handle_ ? initiator_.post_write_to(local, handle_->destination(target_address_), remote)
                : initiator_.post_write(local, remote);
    status.throw_if_failed();
}

void Loopback::post_read(const ibv_sge& local, RemoteAddress remote) const {
    const CallStatus status =
        handle_ ? initiator_.post_read_from(local, handle_->destination(target_address_), remote)
                : initiator_.post_read(local, remote);
    status.throw_if_failed();
}

void Loopback::wait() const {
    const auto completion = cq_.wait_one(timeout);
    if (!completion) {
        throw Error(ETIMEDOUT, "ibv_poll_cq",
                    fmt::format("no completion within {} s", timeout.count()));
    }
    if (!succeeded(*completion)) {
        throw FailedRequest(*completion);
    }
}

LoopbackResult send_one_byte(const Context& context) {
    try {
        const ProtectionDomain pd(context);
        std::array<std::byte, 2> bytes{std::byte{0x5a}, std::byte{0}};
        const Registration region =
            register_memory(pd, Resolver(), bytes.data(), bytes.size(),
                            {.access = Access::local_write | Access::remote_write});
        const Loopback loopback(pd);
        if (context.srd() && !context.srd_attributes().rdma_write) {
            return {.error = 0, .text = "SRD queue pairs, without RDMA write"};
        }
        loopback.post_write(region.sge(0, 1), region.remote().at(1));
        loopback.wait();
        if (bytes[1] != bytes[0]) {
            return {.error = EIO, .text = "a write completed, but its byte did not arrive"};
        }
        return {.error = 0,
                .text = fmt::format("{} queue pairs, one byte written", loopback.type())};
    } catch (const Error& error) {
        return {.error = error.error(), .text = error.what()};
    }
}

} // namespace rdmabuf::tools::doctor
