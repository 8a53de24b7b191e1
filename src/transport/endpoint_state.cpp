// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>

namespace rdmabuf::transport::detail {
namespace {

using rdmabuf::detail::check_zero;

/// Returns a text that describes why the options are invalid; nullptr if they are valid.
const char* refusal(std::size_t devices, const EndpointOptions& options) noexcept {
    if (devices == 0 || devices > max_rails) {
        return "an endpoint has 1 to 4 devices";
    }
    if (options.depth == 0 || options.depth > 65535) {
        return "depth is from 1 to 65535 requests";
    }
    if (options.send_depth < 16 || options.send_depth > 32768) {
        return "send_depth is from 16 to 32768 work requests";
    }
    if (options.eager_limit > 1048576) {
        return "eager_limit is up to 1 MiB";
    }
    if (options.receive_buffers < 16 || options.receive_buffers > 65536) {
        return "receive_buffers is from 16 to 65536";
    }
    if (options.send_buffers < 4 || options.send_buffers > 65536) {
        return "send_buffers is from 4 to 65536";
    }
    constexpr std::uint32_t least = 4096;
    constexpr std::uint32_t most = std::uint32_t{1} << 30U;
    if (options.unexpected_limit < least || options.unexpected_limit > most ||
        options.notification_limit < least || options.notification_limit > most) {
        return "unexpected_limit and notification_limit are from 4096 to 2^30 bytes";
    }
    if (options.inline_data > RailSet::max_inline) {
        return "inline_data is up to 512 bytes";
    }
    if (options.heartbeat.count() <= 0 || options.timeout.count() < 0 ||
        options.handshake.count() <= 0 || options.linger.count() < 0) {
        return "heartbeat and handshake must be more than 0 ms, timeout and linger must not be "
               "negative";
    }
    return nullptr;
}

/// The maximum time for which closing a channel waits for its requests. It is longer than the time
/// after which RailSet::drained() considers a device dead.
constexpr std::int64_t close_limit_ns = 2'000'000'000;

/// Returns true if a receive or a one-sided request of the channel has not completed.
bool has_requests(SharedState& shared, const ChannelState& channel) noexcept {
    bool found = false;
    const auto look = [&](const RequestState& request) {
        found = found || (request.channel == &channel && !request.done);
    };
    shared.receives.for_each(look);
    shared.one_sided.for_each(look);
    return found;
}

void watch(int epoll, int fd, void* pointer) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = pointer;
    check_zero(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno, "epoll_ctl");
}

} // namespace

Result<std::shared_ptr<EndpointState>> EndpointState::make(
    std::span<const Context> devices, const Resolver& resolver,
    const EndpointOptions& options) noexcept {
    if (const char* reason = refusal(devices.size(), options); reason != nullptr) {
        return error_info(EINVAL, reason);
    }
    return attempt([&] {
        std::vector<ProtectionDomain> protection_domains;
        for (const Context& device : devices) {
            protection_domains.emplace_back(device);
        }
        return std::make_shared<EndpointState>(std::move(protection_domains), resolver, options);
    });
}

EndpointState::EndpointState(std::vector<ProtectionDomain> protection_domains,
                             Resolver used_resolver, const EndpointOptions& used_options)
    : options(used_options),
      resolver(std::move(used_resolver)),
      pds(std::move(protection_domains)),
      shared(pds, used_options),
      events_(::epoll_create1(EPOLL_CLOEXEC)) {
    check_zero(events_ ? 0 : errno, "epoll_create1");
    for (const ProtectionDomain& pd : pds) {
        const Context& device = pd.context();
        const ibv_device_attr& attributes = device.attributes().native.orig_attr;
        max_mr_size = std::min<std::uint64_t>(max_mr_size, attributes.max_mr_size);
        max_message = std::min<std::uint64_t>(max_message, device.port(options.port).max_msg_sz);
    }
    for (const auto& rail : shared.rails) {
        watch(events_.get(), rail->events.fd(), nullptr);
    }
    cache.emplace(pds, resolver, options.cache);
}

EndpointState::~EndpointState() = default;

void EndpointState::attach(ChannelState& channel) {
    shared.reserve_completions(channel.rails().size());
    std::size_t added = 0;
    const auto undo = [&] {
        while (added-- > 0) {
            shared.queue_pairs.remove(channel.rails()[added].queue_pair.native()->qp_num);
        }
        shared.release_completions(channel.rails().size());
    };
    try {
        for (; added < channel.rails().size(); ++added) {
            shared.queue_pairs.add(channel.rails()[added].queue_pair.native()->qp_num, channel);
        }
    } catch (...) {
        undo();
        throw;
    }
    channels_.push_back(&channel);
}

void EndpointState::watch_socket(ChannelState& channel, UniqueFd socket) {
    watch(events_.get(), socket.get(), &channel);
    channel.set_socket(std::move(socket));
}

int EndpointState::close(ChannelState& channel) noexcept {
    std::int64_t end = now_ns() + std::chrono::nanoseconds(options.linger).count();
    bool close_sent = false;
    while (channel.broken() == 0 && now_ns() < end) {
        progress();
        channel.signal_all();
        check(now_ns());
        if (channel.broken() == 0 && channel.all_acknowledged()) {
            if (close_sent) {
                break;
            }
            close_sent = channel.send_close();
        }
    }
    const int state = channel.broken();
    channel.fail(EBADF, "the channel was closed");
    // Wait until the devices no longer access the memory of the requests. RailSet::drained()
    // considers a device dead if it reports no completions for a second.
    end = now_ns() + close_limit_ns;
    while ((!channel.ended() || has_requests(shared, channel)) && now_ns() < end) {
        progress();
    }
    const auto forget = [&](RequestState& request) {
        if (request.channel != &channel) {
            return;
        }
        request.channel = nullptr;
        if (!request.done) {
            // The device is dead. The object is not used again, because its completion may still
            // arrive.
            request.done = true;
        } else if (request.context == nullptr && !request.from_any) {
            // Other completed requests are kept, because the program can still get their results
            // by Endpoint::poll_completions() or Endpoint::test().
            shared.give_back(request);
        }
    };
    shared.sends.for_each(forget);
    shared.receives.for_each(forget);
    shared.one_sided.for_each(forget);
    detach(channel);
    return state;
}

void EndpointState::detach(ChannelState& channel) noexcept {
    for (std::size_t i = 0; i < channel.rails().size(); ++i) {
        shared.queue_pairs.remove(channel.rails()[i].queue_pair.native()->qp_num);
    }
    shared.release_completions(channel.rails().size());
    if (channel.is_busy) {
        shared.busy.remove(&channel);
    }
    channels_.remove(&channel);
    if (channel.socket() >= 0) {
        // Closing the socket does not remove it from the epoll set if a forked child process has a
        // copy of the descriptor.
        static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, channel.socket(), nullptr));
    }
}

bool EndpointState::arm() noexcept {
    for (const auto& rail : shared.rails) {
        // Read old events first. Otherwise the epoll descriptor would stay readable.
        for (bool more = true; more;) {
            const auto event =
                attempt([&] { return rail->events.wait(std::chrono::milliseconds(0)); });
            more = event && *event != nullptr;
        }
        if (!rail->cq.request_notification()) {
            return false;
        }
    }
    return !progress() && shared.busy.empty();
}

void EndpointState::sleep(std::chrono::milliseconds timeout) noexcept {
    if (!arm()) {
        return;
    }
    // The sleep ends at least ten times per heartbeat, for the periodic checks.
    const std::int64_t tenth =
        std::max<std::int64_t>(std::chrono::milliseconds(options.heartbeat).count() / 10, 1);
    const std::int64_t wanted = timeout.count() < 0 ? tenth : std::min(tenth, timeout.count());
    epoll_event event{};
    if (::epoll_wait(events_.get(), &event, 1, static_cast<int>(wanted)) == 1 &&
        event.data.ptr != nullptr) {
        check_sockets();
    }
    check(now_ns());
}

void EndpointState::check(std::int64_t now) noexcept {
    if (options.timeout.count() > 0) {
        end_late_requests(now);
    }
    if (loopback_failed_) {
        restore_loopback();
    }
    if (now - checked_ns_ < std::chrono::nanoseconds(options.heartbeat).count() / 10) {
        return;
    }
    checked_ns_ = now;
    check_sockets();
    for (ChannelLinks* i = channels_.front(); i != nullptr; i = All::next(i)) {
        static_cast<ChannelState*>(i)->check(now);
    }
}

void EndpointState::check_sockets() noexcept {
    std::array<epoll_event, 16> ready{};
    const int count = ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    bool polled = false;
    for (const epoll_event& event :
         std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
        if (event.data.ptr == nullptr) {
            continue;
        }
        // Poll before the channel fails, because the peer may have sent messages before it closed
        // its socket.
        while (!polled && poll()) {
        }
        polled = true;
        auto& channel = *static_cast<ChannelState*>(event.data.ptr);
        channel.socket_event();
        if (channel.broken() != 0) {
            static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, channel.socket(), nullptr));
        }
    }
}

void EndpointState::end_late_requests(std::int64_t now) noexcept {
    const auto end = [&](RequestState& request) {
        if (request.done || now < request.deadline) {
            return;
        }
        if (request.channel != nullptr) {
            request.channel->fail(ECONNABORTED, "a request exceeded EndpointOptions::timeout",
                                  &request, ETIMEDOUT);
        } else {
            shared.matcher.remove(static_cast<ReceiveRequest&>(request));
            shared.complete(request, ETIMEDOUT);
        }
    };
    shared.sends.for_each(end);
    shared.receives.for_each(end);
    shared.one_sided.for_each(end);
}

void EndpointState::restore_loopback() noexcept {
    loopback_failed_ = false;
    for (const auto& rail : shared.rails) {
        if (!rail->loopback) {
            continue;
        }
        if (!rail->loopback->queue.idle() || rail->loopback->receives != 0) {
            loopback_failed_ = true; // Its work requests are still being flushed.
            continue;
        }
        rail->loopback.reset();
    }
    if (!loopback_failed_) {
        // An error of create_loopback() is ignored here: later receives to GPU memory then fail
        // with EOPNOTSUPP.
        static_cast<void>(attempt([this] { shared.create_loopback(); }));
    }
}

void EndpointState::fail_all(int error) noexcept {
    for (ChannelLinks* i = channels_.front(); i != nullptr; i = All::next(i)) {
        static_cast<ChannelState*>(i)->fail(EIO, "a shared queue of the endpoint failed");
    }
    shared.error = error;
}

} // namespace rdmabuf::transport::detail
