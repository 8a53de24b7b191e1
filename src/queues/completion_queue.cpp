// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <string>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/detail/check.hpp>

#include "base/file_descriptor.hpp"
#include "queues/cq_events.hpp"

namespace rdmabuf {

const char* completion_hint(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return "a message was longer than the receive posted for it, or than max_msg_sz";
        case IBV_WC_LOC_PROT_ERR:
            return "a local entry lies outside its region, its lkey belongs to another "
                   "protection domain or was deregistered, or a receive or read has no local_write";
        case IBV_WC_WR_FLUSH_ERR:
            return "the queue pair had already failed or was shut down; see the first failed "
                   "completion, or the asynchronous events if a request of the peer was refused";
        case IBV_WC_BAD_RESP_ERR:
            return "the peer sent an unexpected response: connect both queue pairs again";
        case IBV_WC_LOC_ACCESS_ERR:
            return "the local region does not allow this access (needs local_write)";
        case IBV_WC_MW_BIND_ERR:
            return "the region has no memory_window_bind, the range is not inside the region, the "
                   "window is still bound, or MemoryWindow::set_rkey() was not called after its "
                   "last bind request";
        case IBV_WC_REM_INV_REQ_ERR:
            return "the peer refused the request: its receive is too small, or the queue pair does "
                   "not allow the operation or the number of outstanding reads and atomics";
        case IBV_WC_REM_ACCESS_ERR:
            return "the remote address, length, rkey or access flags do not match a region of the "
                   "peer, "
                   "or that region was deregistered or revoked";
        case IBV_WC_REM_OP_ERR:
            return "the peer could not finish the operation; on EFA, the target has no address "
                   "handle for the initiator in its protection domain";
        case IBV_WC_REM_INV_RD_REQ_ERR:
            return "on EFA, the destination queue pair does not exist, or has another Q_Key";
        case IBV_WC_RESP_TIMEOUT_ERR:
            return "the peer does not respond: on EFA, its GID is wrong or unreachable";
        case IBV_WC_RETRY_EXC_ERR:
            return "the peer does not respond: it has exited, was never connected, or the path is "
                   "wrong (GID index, MTU, a switch)";
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return "the peer had no receive posted in time: the peer must post more receives, or "
                   "this side must allow more retries with rnr_retry (7: no limit)";
        case IBV_WC_FATAL_ERR:
            return "the device or its driver failed: see the kernel's log (dmesg)";
        default:
            return "";
    }
}

std::string describe(const WorkCompletion& completion) {
    std::array<char, 64> vendor{};
    if (completion.vendor_err != 0) {
        std::snprintf(vendor.data(), vendor.size(), " (vendor error 0x%x)", completion.vendor_err);
    }
    std::string text = "wr_id " + std::to_string(completion.wr_id) + " on QP " +
                       std::to_string(completion.qp_num) + ": " +
                       ibv_wc_status_str(completion.status) + vendor.data();
    if (const std::string hint = completion_hint(completion.status); !hint.empty()) {
        text.append(": ").append(hint);
    }
    return text;
}

int detail::DestroyCompChannel::call(ibv_comp_channel* channel) noexcept {
    return ibv_destroy_comp_channel(channel);
}

namespace {

ibv_comp_channel* create(const Context& context) {
    constexpr const char* function = "ibv_create_comp_channel";
    ibv_context* const native = detail::native_of(context, function, "Context");
    errno = 0;
    return detail::check_pointer(ibv_create_comp_channel(native), function);
}

} // namespace

CompletionChannel::CompletionChannel(const Context& context)
    : handle_(detail::CompletionChannelHandle::unique(
          create(context),
          detail::CompletionChannelHandle::unique::deleter_type::holding(context))) {
    detail::make_nonblocking(native()->fd);
}

ibv_cq* CompletionChannel::wait(std::chrono::milliseconds timeout) const {
    ibv_cq* const cq = detail::wait_event(
        detail::native_of(*this, "CompletionChannel::wait", "CompletionChannel"), timeout);
    if (cq != nullptr) {
        // The event is acknowledged at once, because ibv_destroy_cq(3) waits until all events are
        // acknowledged.
        ibv_ack_cq_events(cq, 1);
    }
    return cq;
}

ibv_cq* CompletionChannel::get_event() const {
    return detail::take_event(
        detail::native_of(*this, "CompletionChannel::get_event", "CompletionChannel"));
}

int CompletionChannel::fd() const {
    return detail::native_of(*this, "CompletionChannel::fd", "CompletionChannel")->fd;
}

int detail::DestroyCq::call(ibv_cq* cq, const Context& /*context*/,
                            const CompletionChannelHandle& /*channel*/,
                            const std::shared_ptr<CqEvents>& events,
                            const std::optional<ProtectionDomain>& /*parent_domain*/) noexcept {
    events->acknowledge_all(cq);
    return ibv_destroy_cq(cq);
}

namespace {

using Acknowledgement = detail::CqEvents::Acknowledgement;

/// Returns true if @p depth is positive and fits into an int, the type of the depth in
/// ibv_create_cq(3).
bool is_depth(unsigned depth) noexcept {
    return depth != 0 && depth <= static_cast<unsigned>(std::numeric_limits<int>::max());
}

std::string explain(const Context& context, const CompletionQueueOptions& options) {
    return "depth " + std::to_string(options.depth) + " of at most " +
           std::to_string(context.attributes().native.orig_attr.max_cqe) + ", vector " +
           std::to_string(options.vector) + " of " +
           std::to_string(context.native()->num_comp_vectors) + " on " + context.device_name();
}

ibv_cq* create(const Context& context, const CompletionQueueOptions& options) {
    constexpr const char* function = "ibv_create_cq";
    ibv_context* const native = detail::native_of(context, function, "Context");
    ibv_comp_channel* const channel =
        options.channel != nullptr
            ? detail::native_of(*options.channel, function, "CompletionChannel")
            : nullptr;
    if (!is_depth(options.depth)) {
        throw Error(EINVAL, function, explain(context, options));
    }
    errno = 0;
    return detail::check_pointer(ibv_create_cq(native, static_cast<int>(options.depth),
                                               options.cq_context, channel, options.vector),
                                 function, [&](int) { return explain(context, options); });
}

/// Polls the completion queue, and returns the number of completions.
/// @throws Error EIO if ibv_poll_cq(3) fails because the queue is broken
std::size_t poll_checked(ibv_cq* cq, std::span<WorkCompletion> completions) {
    const int count = ibv_poll_cq(cq, static_cast<int>(completions.size()), completions.data());
    detail::check_zero(count < 0 ? EIO : 0, "ibv_poll_cq",
                       "the completion queue is broken; most likely it overran: its depth must "
                       "cover all requests outstanding on its queue pairs");
    return static_cast<std::size_t>(count);
}

/// Sleeps until the channel reports an event of @p cq, or until @p deadline expires. If completions
/// have arrived before the sleep, writes them to @p completions and does not sleep.
/// @return the number of these completions; 0 if the caller must poll the queue now
/// @throws Error EINVAL if the event belongs to another queue; the errors of the verbs functions
std::size_t sleep(ibv_cq* cq, detail::CqEvents& events, std::span<WorkCompletion> completions,
                  const detail::Deadline& deadline) {
    detail::check_zero(ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
    // A completion that arrived before ibv_req_notify_cq(3) causes no event. The queue is therefore
    // polled once more before this thread sleeps.
    if (const std::size_t count = poll_checked(cq, completions); count != 0) {
        return count;
    }
    // A channel that the program created itself may have a blocking descriptor.
    detail::make_nonblocking(cq->channel->fd);
    ibv_cq* const ready = detail::wait_event(cq->channel, deadline.left());
    if (ready == cq) {
        events.acknowledge(cq);
    } else if (ready != nullptr) {
        ibv_ack_cq_events(ready, 1);
        throw Error(EINVAL, "ibv_get_cq_event",
                    "the event belongs to another completion queue with the same channel; for a "
                    "shared channel, use CompletionChannel::wait");
    }
    return 0;
}

} // namespace

CompletionQueue::CompletionQueue(const Context& context, const CompletionQueueOptions& options)
    : handle_([&] {
          Handle::unique owner = parents_of(context, options.channel, nullptr);
          owner.reset(create(context, options));
          return owner;
      }()) {}

CompletionQueue CompletionQueue::adopt(const Context& context, ibv_cq* cq,
                                       const CompletionChannel* channel) {
    Handle::unique owner = parents_of(context, channel, nullptr);
    owner.reset(cq);
    return CompletionQueue(Handle(std::move(owner)));
}

CompletionQueue CompletionQueue::borrow(ibv_cq* cq) {
    return CompletionQueue(borrow_handle(cq));
}

CompletionQueue::Handle::unique CompletionQueue::parents_of(const Context& context,
                                                            const CompletionChannel* channel,
                                                            const ProtectionDomain* parent_domain) {
    return {nullptr,
            Handle::unique::deleter_type::holding(
                context, channel != nullptr ? channel->handle_ : detail::CompletionChannelHandle(),
                std::make_shared<detail::CqEvents>(Acknowledgement::batched),
                parent_domain != nullptr ? std::optional(*parent_domain) : std::nullopt)};
}

CompletionQueue::Handle CompletionQueue::borrow_handle(ibv_cq* cq) {
    return cq != nullptr
               ? Handle::borrow(cq, Context::borrow(cq->context), {},
                                std::make_shared<detail::CqEvents>(Acknowledgement::immediate), {})
               : Handle();
}

ibv_cq* CompletionQueue::release() noexcept {
    if (handle_) {
        handle_.parent<2>("CompletionQueue::release", "CompletionQueue")->stop_batching(native());
    }
    return handle_.release();
}

void CompletionQueue::acknowledge_event() const {
    constexpr const char* function = "ibv_ack_cq_events";
    ibv_cq* const cq = detail::native_of(*this, function, "CompletionQueue");
    handle_.parent<2>(function, "CompletionQueue")->acknowledge(cq);
}

void CompletionQueue::resize(unsigned depth) {
    constexpr const char* function = "ibv_resize_cq";
    ibv_cq* const cq = detail::native_of(*this, function, "CompletionQueue");
    const auto hint = [&](int) {
        return "from " + std::to_string(cq->cqe) + " to " + std::to_string(depth) +
               " completions, of at most " +
               std::to_string(context().attributes().native.orig_attr.max_cqe) + " on " +
               context().device_name();
    };
    if (!is_depth(depth)) {
        throw Error(EINVAL, function, hint(EINVAL));
    }
    detail::check_zero(ibv_resize_cq(cq, static_cast<int>(depth)), function, hint);
}

void CompletionQueue::moderate(std::uint16_t count, std::chrono::microseconds period) {
    constexpr const char* function = "ibv_modify_cq";
    ibv_cq* const cq = detail::native_of(*this, function, "CompletionQueue");
    const auto hint = [&](int) {
        const ibv_cq_moderation_caps most = context().attributes().native.cq_mod_caps;
        return std::to_string(count) + " completions of at most " +
               std::to_string(most.max_cq_count) + ", " + std::to_string(period.count()) +
               " us of at most " + std::to_string(most.max_cq_period) + " on " +
               context().device_name();
    };
    if (period.count() < 0 || period.count() > std::numeric_limits<std::uint16_t>::max()) {
        throw Error(EINVAL, function, hint(EINVAL));
    }
    ibv_modify_cq_attr attributes{};
    attributes.attr_mask = IBV_CQ_ATTR_MODERATE;
    attributes.moderate.cq_count = count;
    attributes.moderate.cq_period = static_cast<std::uint16_t>(period.count());
    detail::check_zero(ibv_modify_cq(cq, &attributes), function, hint);
}

std::size_t CompletionQueue::wait(std::span<WorkCompletion> completions,
                                  std::chrono::milliseconds timeout) const {
    ibv_cq* const cq = detail::native_of(*this, "CompletionQueue::wait", "CompletionQueue");
    if (completions.empty()) {
        throw Error(EINVAL, "ibv_poll_cq", "there is no room for a completion: the span is empty");
    }
    const detail::Deadline deadline(timeout);
    while (true) {
        if (const std::size_t count = poll_checked(cq, completions); count != 0) {
            return count;
        }
        const std::chrono::milliseconds left = deadline.left();
        if (left.count() == 0) {
            return 0;
        }
        if (cq->channel == nullptr) {
            continue;
        }
        auto& events = *handle_.parent<2>("CompletionQueue::wait", "CompletionQueue");
        if (const detail::CqEvents::Turn turn(events, left); turn) {
            if (const std::size_t count = sleep(cq, events, completions, deadline); count != 0) {
                return count;
            }
        }
    }
}

} // namespace rdmabuf
