// SPDX-License-Identifier: BSD-3-Clause
#include "endpoint.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include <rdmabuf/error.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

namespace {

/// Checks that the device has SRD queue pairs that support the verb.
/// @return the maximum size of a transfer in bytes
/// @throws UsageError if the verb is not supported, Error EOPNOTSUPP if the device has no SRD queue
///         pairs
std::uint64_t check_srd(const Context& context, std::uint8_t port, Verb verb) {
    const SrdAttributes srd = context.srd_attributes();
    if (verb == Verb::send) {
        return context.port(port).max_msg_sz;
    }
    if (verb == Verb::read ? !srd.rdma_read : !srd.rdma_write) {
        throw UsageError(fmt::format("{} has no {} on SRD queue pairs: use another --verb",
                                     context.device_name(), to_string(verb)));
    }
    return srd.max_rdma_size;
}

/// Checks that the device supports the options. Without this check, a later verbs call would fail
/// with an error that does not name the option.
/// @return @p context
/// @throws UsageError if an option is not supported
const Context& checked(const Context& context, std::uint8_t port, const Options& options,
                       const Layout& layout) {
    const std::string device = context.device_name();
    if (is_atomic(options.verb) && !context.attributes().atomics()) {
        throw UsageError(device + " has no atomics: use another --verb or another --device");
    }
    const bool is_srd = options.qp_type == QueuePairType::scalable_reliable_datagram;
    if (!is_srd && context.srd()) {
        throw UsageError(device +
                         " is an EFA device, which has no RC queue pairs: use --qp-type srd");
    }
    const std::uint64_t longest =
        is_srd ? check_srd(context, port, options.verb) : context.port(port).max_msg_sz;
    if (options.size > longest) {
        throw UsageError(fmt::format(
            "--size {} is above {}, the longest message of {} ({})", options.size, longest, device,
            is_srd && options.verb != Verb::send ? "max_rdma_size" : "max_msg_sz"));
    }
    if (options.memory.type == "dm") {
        const std::uint64_t capacity = context.attributes().max_dm_size();
        const std::uint64_t needed = layout.buffer_size() * (options.loopback ? 2 : 1);
        if (capacity == 0) {
            throw UsageError(device +
                             " has no device memory (max_dm_size is 0): use another "
                             "--memory or another --device");
        }
        if (needed > capacity) {
            throw UsageError(
                fmt::format("--size {} with --depth {} and guards needs {} bytes of device "
                            "memory{}, and {} has {} (max_dm_size): reduce --size or --depth",
                            options.size, options.depth, needed,
                            options.loopback ? " for both ends" : "", device, capacity));
        }
    }
    return context;
}

Layout make_layout(const Options& options) {
    return {options.size, options.depth, options.verb,
            static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))};
}

/// Maximum number of send requests that one transfer posts: a write and a send (--verb write).
constexpr std::uint32_t requests_per_transfer = 2;
/// Maximum number of completions of one transfer at each end: one of a send request, and one of a
/// receive.
constexpr std::uint32_t completions_per_transfer = 2;

} // namespace

Resources::Resources(const Context& device, std::uint8_t device_port,
                     std::optional<GidEntry> device_gid, const Options& options)
    : context(checked(device, device_port, options, make_layout(options))),
      port(device_port),
      gid(device_gid),
      verb(options.verb),
      layout(make_layout(options)),
      pd(context),
      cq(context, {.depth = completions_per_transfer * options.depth}),
      memory(pd, options.memory,
             {.size = layout.buffer_size(),
              .region_offset = layout.region_offset(),
              .region_length = layout.region_length()},
             {.access = access_for(options.verb)}) {}

PreparedQueuePair Resources::prepare(const Options& options) const {
    QueuePairOptions choice{.send_cq = cq, .recv_cq = cq};
    choice.type = options.qp_type;
    choice.max_send_wr = requests_per_transfer * options.depth;
    choice.max_recv_wr = options.depth;
    // The value limits the number of reads and atomics in flight. If the value is above the limit
    // of the device, QueuePair uses the limit of the device.
    choice.max_rd_atomic = static_cast<std::uint8_t>(std::clamp(options.depth, 16U, 255U));
    choice.max_dest_rd_atomic = choice.max_rd_atomic;
    choice.port = port;
    if (gid) {
        choice.gid_index = gid->index;
    }
    PreparedQueuePair prepared = QueuePair::prepare(pd, choice);
    for (std::uint32_t i = 0; i < options.depth; ++i) {
        const auto sge = receive(i);
        prepared.post_recv(std::span(sge ? &*sge : nullptr, sge ? 1 : 0), i).throw_if_failed();
    }
    return prepared;
}

std::optional<ibv_sge> Resources::receive(std::uint64_t transfer) const noexcept {
    if (verb != Verb::send) {
        return std::nullopt;
    }
    return memory.sge(layout.slot(transfer) + layout.incoming(), layout.size());
}

} // namespace rdmabuf::tools::perf
