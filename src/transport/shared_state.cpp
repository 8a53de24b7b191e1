// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>

#include "transport/queue_pair_options.hpp"

namespace rdmabuf::transport::detail {

std::int64_t (*test_clock)() = nullptr;
std::uint32_t test_first_count = 0;

namespace {

/// The maximum number of send queue entries of a loopback queue pair. Its receive queue has up to
/// twice as many, because receives may complete after their sends.
constexpr std::uint32_t loopback_depth = 64;
constexpr std::uint32_t loopback_receives = 2 * loopback_depth;
static_assert(loopback_completions == loopback_depth + loopback_receives);
/// A new completion queue has entries for this number of channels with one queue pair per device.
/// It is resized for further channels.
constexpr std::uint32_t first_channels = 4;
/// A completion queue of a provider that cannot resize it has entries for this number of channels.
constexpr std::uint32_t most_channels = 256;

/// Returns @p wanted, or the limit of a device if it is smaller. A limit below 1 counts as 1.
std::uint32_t at_most(std::uint64_t wanted, int limit) {
    return static_cast<std::uint32_t>(
        std::min(wanted, static_cast<std::uint64_t>(std::max(limit, 1))));
}

/// A completion queue, and the largest number of its entries.
struct Completions {
    CompletionQueue cq;
    std::uint32_t depth;
    std::uint32_t largest_depth;
};

/// @param receives    number of entries for receives and for the loopback queue pair
/// @param send_depth  number of entries for each channel
Completions make_completions(const Context& context, const CompletionChannel& events,
                             std::uint32_t receives, std::uint32_t send_depth) {
    const int limit = context.attributes().native.orig_attr.max_cqe;
    const auto create = [&](std::uint32_t channels) {
        const std::uint32_t depth = at_most(receives + std::uint64_t{channels} * send_depth, limit);
        return Completions{
            .cq = CompletionQueue(context, {.depth = depth, .channel = &events}),
            .depth = depth,
            .largest_depth = at_most(std::numeric_limits<std::uint32_t>::max(), limit)};
    };
    Completions made = create(first_channels);
    try {
        made.cq.resize(made.depth); // To find out if the provider can resize it.
    } catch (const Error& error) {
        if (error.code().value() != EOPNOTSUPP) {
            throw;
        }
        made = create(most_channels);
        made.largest_depth = made.depth;
    }
    return made;
}

std::unique_ptr<SharedRail> make_rail(const ProtectionDomain& pd, const EndpointOptions& options,
                                      const BouncePool& pool, bool first) {
    const Context& context = pd.context();
    const ibv_device_attr& limits = context.attributes().native.orig_attr;
    if (limits.max_srq == 0) {
        throw Error(
            EOPNOTSUPP, "ibv_create_srq",
            context.device_name() + " has no shared receive queues, which the transport needs");
    }
    const ibv_port_attr port = context.port(options.port);
    const std::uint32_t send_depth = at_most(options.send_depth, limits.max_qp_wr);
    const std::uint32_t receives = at_most(options.receive_buffers, limits.max_srq_wr);
    CompletionChannel events(context);
    const std::uint32_t reserved = receives + loopback_completions;
    Completions completions = make_completions(context, events, reserved, send_depth);
    SharedReceiveQueue srq(pd, {.max_wr = receives, .max_sge = 1});
    // NOLINTNEXTLINE(modernize-make-unique): an aggregate with designated initialisers
    auto rail = std::unique_ptr<SharedRail>(new SharedRail{
        .pd = pd,
        .events = std::move(events),
        .cq = std::move(completions.cq),
        .srq = std::move(srq),
        .bounce_buffers = MemoryRegion(pd, pool.data(), pool.size(),
                                       MemoryRegionOptions{.access = Access::local_write}),
        .probe_line =
            MemoryRegion(pd, pool.probe_line(), BouncePool::line,
                         MemoryRegionOptions{.access = Access::local_write | Access::remote_write |
                                                       Access::remote_read}),
        .replenisher = {},
        .loopback = std::nullopt,
        // A port of unknown speed counts as 1 Mbit/s. If all speeds are unknown, the devices share
        // the data evenly. Beside a device of known speed, such a device gets only a very small
        // part of a long transfer.
        .speed = std::max(link_speed(port), std::uint32_t{1}),
        .cq_depth = completions.depth,
        .cq_largest_depth = completions.largest_depth,
        .cq_reserved = reserved,
        .send_depth = send_depth,
        .failure = nullptr,
        .port_down = port.state != IBV_PORT_ACTIVE});
    ReceiveReplenisher& replenisher = rail->replenisher;
    replenisher.create(receives);
    for (std::uint32_t i = 0; i < receives; ++i) {
        // On the first device, each receive has a buffer for one message. On other devices,
        // receives are consumed only by RDMA writes with immediate data, which need no buffer.
        if (first) {
            replenisher.set_buffer(
                i, {.addr = reinterpret_cast<std::uintptr_t>(pool.receive_buffer(i)),
                    .length = pool.receive_size(),
                    .lkey = rail->bounce_buffers.lkey()});
        }
        replenisher.add(replenisher[i]);
        if (replenisher.full() || i + 1 == receives) {
            rdmabuf::detail::check_zero(replenisher.post(rail->srq.native()), "ibv_post_srq_recv");
        }
    }
    return rail;
}

Loopback make_loopback(const SharedRail& rail, const EndpointOptions& options) {
    const std::uint32_t sends = std::min(loopback_depth, rail.send_depth);
    QueuePairOptions pair = queue_pair_options(rail, options);
    pair.max_send_wr = sends;
    pair.max_recv_wr = std::min(loopback_receives, rail.send_depth);
    pair.timeout = options.ack_timeout;
    pair.retry_count = options.retry_count;
    PreparedQueuePair prepared(rail.pd, pair);
    const QueuePairAddress address = prepared.address();
    return {.queue_pair = std::move(prepared).connect(address),
            .queue = SendQueue(sends),
            .receive_depth = pair.max_recv_wr};
}

} // namespace

SharedState::SharedState(std::span<const ProtectionDomain> pds, const EndpointOptions& used)
    : options(used),
      pool(used.eager_limit, used.receive_buffers, used.send_buffers),
      blocks(std::size_t{used.unexpected_limit} + used.notification_limit),
      several_rails(pds.size() > 1) {
    for (const ProtectionDomain& pd : pds) {
        rails.push_back(make_rail(pd, options, pool, rails.empty()));
    }
}

SharedState::~SharedState() = default;

void SharedState::query_port(SharedRail& rail) {
    const auto port = attempt([&] { return rail.pd.context().port(options.port); });
    if (port.error() == EIO) {
        fail(rail, "ibv_query_port failed");
    }
    rail.set_port_down(port.value().state != IBV_PORT_ACTIVE);
}

void SharedState::create_loopback() {
    ErrorInfo first_error;
    for (const auto& owner : rails) {
        SharedRail& rail = *owner;
        if (rail.loopback || rail.failure != nullptr) {
            continue;
        }
        const auto created = attempt([&] {
            query_port(rail);
            if (!rail.port_down) {
                rail.loopback.emplace(make_loopback(rail, options));
            }
        });
        if (created) {
            rail.loopback_failed_ns = 0;
            rail.loopback_error = 0;
            continue;
        }
        const std::int64_t now = now_ns();
        if (rail.loopback_failed_ns == 0) {
            rail.loopback_failed_ns = now;
        }
        if (now - rail.loopback_failed_ns >= detection_ns()) {
            // LoopbackCopy returns EAGAIN for requests that must wait.
            rail.loopback_error = created.error() == EAGAIN ? EBUSY : created.error();
        }
        if (first_error.error() == 0) {
            first_error = created.error_info();
        }
    }
    if (first_error.error() != 0) {
        first_error.raise();
    }
    needs_loopback = true;
}

void SharedState::reserve_completions(SharedRail& rail, std::uint32_t entries) {
    const std::uint32_t needed = rail.cq_reserved + entries;
    if (needed > rail.cq_depth) {
        if (needed > rail.cq_largest_depth) {
            throw Error(ENOSPC, "ibv_resize_cq",
                        "the device has no completion queue for so many channels: reduce "
                        "EndpointOptions::send_depth or "
                        "EndpointOptions::queue_pairs_per_device, or use several "
                        "endpoints");
        }
        const std::uint32_t depth =
            std::min(rail.cq_largest_depth, std::max(needed, 2 * rail.cq_depth));
        rail.cq.resize(depth);
        rail.cq_depth = depth;
    }
    rail.cq_reserved = needed;
}

void SharedState::reserve_completions(std::size_t devices, std::uint32_t queue_pairs) {
    std::size_t done = 0;
    try {
        for (; done < devices; ++done) {
            reserve_completions(*rails[done], queue_pairs * rails[done]->send_depth);
        }
    } catch (...) {
        release_completions(done, queue_pairs);
        throw;
    }
}

void SharedState::release_completions(std::size_t devices, std::uint32_t queue_pairs) noexcept {
    for (std::size_t i = 0; i < devices; ++i) {
        rails[i]->cq_reserved -= queue_pairs * rails[i]->send_depth;
    }
}

void SharedState::post_receives(SharedRail& rail) noexcept {
    if (rail.replenisher.post(rail.srq.native()) != 0) {
        fail(rail, "ibv_post_srq_recv failed on the shared receive queue of a device");
    }
}

void SharedState::fail(SharedRail& rail, const char* reason) noexcept {
    if (rail.failure == nullptr) {
        rail.failure = reason;
        rail_failed = true;
    }
}

std::int64_t SharedState::retransmission_ns() const noexcept {
    // The local ACK timeout is 4096 ns times 2^ack_timeout. A device may wait up to four times as
    // long before each retransmission.
    return 4 * (std::int64_t{4096} << options.ack_timeout) * (options.retry_count + 1);
}

std::int64_t SharedState::detection_ns() const noexcept {
    return 2 * to_ns(options.heartbeat) + retransmission_ns();
}

void SharedState::hold(RequestState& request, LeasedMemory* memory) noexcept {
    if (request.done) {
        leases.give_back(memory);
        return;
    }
    memory->context = std::exchange(request.context, memory);
    request.leased = true;
    request.simple = false; // The lease must end with the request.
}

void SharedState::end_lease(RequestState& request) noexcept {
    if (request.leased) {
        auto* const memory = static_cast<LeasedMemory*>(request.context);
        request.leased = false;
        request.context = memory->context;
        leases.give_back(memory);
    }
}

void SharedState::give_back(RequestState& request) noexcept {
    switch (request.type()) {
        case RequestType::send:
            sends.give_back(static_cast<SendRequest*>(&request));
            break;
        case RequestType::receive:
            receives.give_back(static_cast<ReceiveRequest*>(&request));
            break;
        case RequestType::one_sided:
            one_sided.give_back(static_cast<OneSidedRequest*>(&request));
            break;
    }
}

std::uint32_t SharedState::wire_number(const RequestState& request) noexcept {
    return (request.index & position_mask) | (request.generation & generation_mask)
                                                 << RequestState::type_shift;
}

void SharedState::wake(ChannelLinks& channel) noexcept {
    if (!channel.is_busy) {
        channel.is_busy = true;
        busy.push_back(&channel);
    }
}

} // namespace rdmabuf::transport::detail
