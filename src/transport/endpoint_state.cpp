// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>

#include "transport/async_event_queue.hpp"
#include "transport/unlocked.hpp"

namespace rdmabuf::transport::detail {
namespace {

using rdmabuf::detail::check_zero;

/// Returns a text that describes why the options are invalid; nullptr if they are valid.
const char* refusal(std::size_t devices, const EndpointOptions& options) noexcept {
    if (devices == 0 || devices > max_rails) {
        return "an endpoint has 1 to 8 devices";
    }
    if (options.depth == 0 || options.depth > 65535) {
        return "depth is from 1 to 65535 requests";
    }
    if (options.send_depth < 16 || options.send_depth > 32768) {
        return "send_depth is from 16 to 32768 work requests";
    }
    if (options.queue_pairs_per_device == 0 ||
        options.queue_pairs_per_device > max_queue_pairs_per_device) {
        return "queue_pairs_per_device is from 1 to 4";
    }
    if (devices * options.queue_pairs_per_device > max_channel_rails) {
        return "a channel has up to 16 queue pairs: reduce queue_pairs_per_device";
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
        options.handshake.count() <= 0 || options.linger.count() < 0 ||
        options.probation.count() < 0 || options.probation > std::chrono::hours(24)) {
        return "heartbeat and handshake must be more than 0 ms; timeout, linger and probation must "
               "not be negative; probation is up to 24 hours";
    }
    return nullptr;
}

/// The maximum time for which close() waits until the devices have completed all requests. It is
/// longer than RailSet::drain_limit_ns, after which a device without completions is considered
/// dead.
constexpr std::int64_t close_limit_ns = 2'000'000'000;
/// The maximum time for which close() sleeps if no event ends the sleep.
constexpr std::chrono::milliseconds close_sleep(5);

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

/// Undoes EndpointState::attach() for a channel: removes its first @p count queue pairs from
/// SharedRail::queue_pairs, and releases the completion queue entries of all its queue pairs.
/// attach() reserves all entries before it adds the first queue pair, so after a failure of
/// attach() @p count is smaller than the number of queue pairs.
void remove_queue_pairs(SharedState& shared, RailSet& rails, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (const ibv_qp* const pair = rails[i].queue_pair.native(); pair != nullptr) {
            shared.rails[rails[i].device]->queue_pairs.remove(pair->qp_num);
        }
    }
    shared.release_completions(rails.devices(), rails.queue_pairs_per_device());
}

void watch(int epoll, int fd, void* pointer) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.ptr = pointer;
    check_zero(::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno, "epoll_ctl");
}

} // namespace

Result<std::shared_ptr<EndpointState>> EndpointState::make(std::span<const Context> devices,
                                                           const Resolver& resolver,
                                                           const EndpointOptions& options,
                                                           std::size_t layout) noexcept {
    if (layout != state_layout) {
        return error_info(
            EINVAL,
            "the program was compiled with the headers of another version of rdmabuf; compile it "
            "with those of the library that it uses");
    }
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
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
    check_zero(events_ ? 0 : errno, "epoll_create1");
    check_zero(timer_ ? 0 : errno, "timerfd_create");
    watch(events_.get(), timer_.get(), &timer_);
    for (const ProtectionDomain& pd : pds) {
        const Context& device = pd.context();
        const ibv_device_attr& attributes = device.attributes().native.orig_attr;
        max_mr_size = std::min<std::uint64_t>(max_mr_size, attributes.max_mr_size);
        max_message = std::min<std::uint64_t>(max_message, device.port(options.port).max_msg_sz);
    }
    for (const auto& rail : shared.rails) {
        watch(events_.get(), rail->events.fd(), nullptr);
    }
    if (options.read_async_events) {
        async_events_ = std::make_unique<AsyncEventQueue>(pds);
        for (const Context& device : async_events_->devices()) {
            watch(events_.get(), device.async_fd(), async_events_.get());
        }
        watch(events_.get(), async_events_->descriptor(), async_events_.get());
    }
    select_registering();
}

void EndpointState::select_registering() {
    RegisteringDevices selected;
    for (std::size_t i = 0; i < pds.size(); ++i) {
        // The first device always registers memory: no channel works without it.
        const bool works = i == 0 || shared.rails[i]->failure == nullptr;
        selected.index.at(i) = works ? selected.pds.size() : RegisteringDevices::failed;
        if (works) {
            selected.pds.push_back(pds[i]);
        }
    }
    if (selected.pds.size() != registering.pds.size()) {
        // The new cache registers memory only on the selected devices. The earlier cache stays in
        // `caches`, because leases from it may still exist; they keep their registrations.
        caches.emplace_back(selected.pds, resolver, options.cache);
        RegistrationCache* const earlier = cache.exchange(&caches.back());
        registering = std::move(selected);
        if (earlier != nullptr) {
            earlier->clear();
        }
    }
}

EndpointState::~EndpointState() = default;

void EndpointState::attach(ChannelState& channel) {
    // A new queue pair can have the same ibv_qp address as a destroyed one. Process the events of
    // destroyed queue pairs now, so that they are not assigned to the new queue pair.
    read_async_events();
    RailSet& rails = channel.rails();
    shared.reserve_completions(rails.devices(), rails.queue_pairs_per_device());
    std::uint32_t added = 0;
    try {
        for (; added < rails.size(); ++added) {
            const ChannelRail& rail = rails[added];
            shared.rails[rail.device]->queue_pairs.add(rail.queue_pair.native()->qp_num, channel,
                                                       added);
        }
    } catch (...) {
        remove_queue_pairs(shared, rails, added);
        throw;
    }
    channels_.push_back(&channel);
    close_unacknowledged_ = false;
    // EndpointOptions::mutex was unlocked while the queue pairs were connected, so a device may
    // have failed meanwhile. The next poll() then stops using the device.
    shared.rail_failed =
        shared.rail_failed || std::ranges::any_of(shared.rails, [](const auto& rail) noexcept {
            return rail->failure != nullptr;
        });
}

void EndpointState::watch_socket(ChannelState& channel, UniqueFd socket) {
    watch(events_.get(), socket.get(), &channel);
    channel.set_socket(std::move(socket));
}

SetupQueuePair& EndpointState::setup_queue_pair() {
    if (setup_ == nullptr) {
        // Process the events of destroyed queue pairs before a new one is created; see attach().
        read_async_events();
        setup_ = std::make_unique<SetupQueuePair>(*shared.rails[0], options);
    }
    return *setup_;
}

void EndpointState::setup_completed(const WorkId& id, const WorkCompletion& completion) noexcept {
    constexpr const char* failed = "the UD queue pair of the prepared channels has failed";
    if (completion.status != IBV_WC_SUCCESS) {
        shared.fail(*shared.rails[0], failed);
        return;
    }
    if (id.work == Work::setup_send) {
        setup_->send_completed();
        return;
    }
    if (const auto datagram = setup_->received(id.number, completion.byte_len)) {
        for (ChannelLinks& links : channels_) {
            auto& channel = static_cast<ChannelState&>(links);
            if (channel.is_end(datagram->to)) {
                channel.connected_arrived(*datagram);
                break;
            }
        }
        for (PreparedEnd& end : prepared_ends_) {
            if (end.secret == datagram->to) {
                end.datagram = datagram;
            }
        }
    }
    if (!setup_->post_receive(id.number)) {
        shared.fail(*shared.rails[0], failed);
    }
}

void EndpointState::close(Closing& channels) noexcept {
    const OneThread one_thread(user_);
    // Poll without sleeping at first, because the last acknowledgements usually arrive soon.
    SpinWait spin(wait_forever);
    while (!channels.empty()) {
        progress();
        for (ChannelLinks& channel : channels) {
            if (advance_close(static_cast<ChannelState&>(channel), true)) {
                channels.remove(&channel);
            }
        }
        check(now_ns());
        if (!channels.empty()) {
            static_cast<void>(spin.wait([this](std::chrono::milliseconds) { sleep(close_sleep); }));
        }
    }
}

std::uint32_t EndpointState::next_number() noexcept {
    static constinit std::atomic<std::uint32_t> last{0};
    const std::uint32_t next = ++last;
    return next != 0 ? next : ++last; // Skips 0 when the counter wraps around.
}

bool EndpointState::try_close(ChannelState& channel, bool linger) noexcept {
    const OneThread one_thread(user_);
    progress();
    check(now_ns());
    return advance_close(channel, linger);
}

bool EndpointState::advance_close(ChannelState& channel, bool linger) noexcept {
    const std::int64_t now = now_ns();
    if (channel.linger_end_ns == 0) {
        channel.linger_end_ns = now + to_ns(options.linger);
    }
    if (channel.drain_end_ns == 0) {
        const bool works = channel.broken() == 0;
        const bool over = now >= channel.linger_end_ns;
        if (works && linger && !over) {
            channel.signal_all();
        }
        const bool acknowledged = works && channel.all_acknowledged();
        if (works && linger && !channel.is_unused() && !(acknowledged && channel.close_sent)) {
            if (acknowledged) {
                channel.close_sent = channel.send_close();
                if (channel.close_sent && over) {
                    // The linger time ended before the close message could be sent. Start the
                    // linger time again, so that the peer has the full time to acknowledge the
                    // close message.
                    channel.linger_end_ns = now + to_ns(options.linger);
                }
            }
            const bool waits =
                !channel.close_sent || !close_unacknowledged_ || channel.socket() < 0;
            if (waits && now < channel.linger_end_ns) {
                return false;
            }
            close_unacknowledged_ = close_unacknowledged_ || channel.close_sent;
        }
        if (channel.close_sent && channel.broken() == EHOSTUNREACH) {
            close_unacknowledged_ = true;
        }
        if (works && (acknowledged || channel.close_sent)) {
            channel.say_goodbye();
        } else {
            channel.unacknowledged = works && !channel.is_unused() && linger;
        }
        channel.rails().fail(EBADF, "the channel was closed", nullptr, 0, true);
        // A dead device reports no completions, so the time to wait for them is limited.
        channel.drain_end_ns = now + close_limit_ns;
    }
    read_async_events();
    const std::int64_t waited = now - (channel.drain_end_ns - close_limit_ns);
    const bool drained =
        channel.ended() && !has_requests(shared, channel) && receives_ended(channel, waited);
    if (!drained && now < channel.drain_end_ns) {
        return false;
    }
    forget(channel);
    return true;
}

void EndpointState::abandon(ChannelState& channel) noexcept {
    if (!creator_.is_current()) {
        return; // The endpoint makes no progress in a child process.
    }
    channel.rails().fail(ECONNABORTED, "the set-up of the channel has failed", nullptr, 0, true);
    Closing failed;
    failed.push_back(&channel);
    close(failed);
}

bool EndpointState::receives_ended(ChannelState& channel, std::int64_t waited) const noexcept {
    const RailSet& rails = channel.rails();
    bool ended = true;
    for (std::size_t i = 0; i < rails.size() && async_events_ != nullptr; ++i) {
        ended = ended && rails.receives_ended(i, waited);
    }
    return ended;
}

void EndpointState::forget(ChannelState& channel) noexcept {
    // Poll first: a destroyed queue pair loses its completions, and the receive buffers of messages
    // that have arrived would then never be posted again.
    poll_all();
    channel.give_up();
    channel.drop_loopback(EIO);
    if (has_requests(shared, channel)) {
        // These requests wait for a loopback queue pair whose port is down or whose device is dead.
        // The queue pair could access their memory later, so destroy it.
        reset_loopback();
        channel.drop_loopback(EIO);
    }
    const auto release = [&](RequestState& request) {
        if (request.channel != &channel) {
            return;
        }
        request.channel = nullptr;
        shared.end_lease(request);
        if (request.context == nullptr && !request.from_any) {
            // Return the request to its pool only if the program can no longer query its result.
            // Results of requests with a `context` are still returned by
            // Endpoint::poll_completions(), and results of receives from any channel by
            // Endpoint::test().
            shared.give_back(request);
        }
    };
    shared.sends.for_each(release);
    shared.receives.for_each(release);
    shared.one_sided.for_each(release);
    detach(channel);
}

void EndpointState::detach(ChannelState& channel) noexcept {
    remove_queue_pairs(shared, channel.rails(), channel.rails().size());
    if (channel.is_busy) {
        shared.busy.remove(&channel);
    }
    channels_.remove(&channel);
    if (channel.socket() >= 0) {
        // Remove the socket from the epoll set explicitly. Closing it is not enough if a forked
        // child process has a copy of the descriptor.
        static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, channel.socket(), nullptr));
    }
}

bool EndpointState::arm() noexcept {
    if (!creator_.is_current() || check_descriptors()) {
        return false;
    }
    if (const std::int64_t now = now_ns(); is_check_due(now) && check(now)) {
        return false;
    }
    for (const auto& rail : shared.rails) {
        // Read the old completion events first. Otherwise the epoll descriptor would stay readable.
        // While another thread sleeps, do not read the events: they must end that sleep.
        for (bool more = !sleeps_; more;) {
            const auto event =
                attempt([&] { return rail->events.wait(std::chrono::milliseconds(0)); });
            more = event && *event != nullptr;
        }
        const int error = rail->failure == nullptr ? rail->cq.request_notification().error() : 0;
        if (error == EIO) { // The device has failed.
            shared.fail(*rail, "ibv_req_notify_cq failed");
        }
        if (error != 0) {
            return false;
        }
    }
    if (shared.recovers != timer_runs_) {
        set_timer();
    }
    // The thread may sleep only if no channel can continue without another completion. After a call
    // of progress() that finds no completion, there is one exception: a channel may need send
    // buffers that another channel returned to the pool later in the same call. Therefore
    // progress() is called again.
    return !progress() && (shared.busy.empty() || !progress());
}

void EndpointState::set_timer() noexcept {
    constexpr std::chrono::nanoseconds second = std::chrono::seconds(1);
    const std::chrono::nanoseconds interval =
        shared.recovers ? std::chrono::nanoseconds(to_ns(options.heartbeat) / 10)
                        : std::chrono::nanoseconds(0);
    const timespec time{.tv_sec = interval / second, .tv_nsec = (interval % second).count()};
    const itimerspec times{.it_interval = time, .it_value = time};
    timer_runs_ = shared.recovers && ::timerfd_settime(timer_.get(), 0, &times, nullptr) == 0;
}

void EndpointState::sleep(std::chrono::milliseconds timeout) noexcept {
    if (!sleeps_ && !arm()) {
        return;
    }
    // The sleep lasts at most a tenth of the heartbeat, for the periodic checks. It also lasts at
    // most a minute, which fits the time types of epoll_wait(2) and std::condition_variable.
    constexpr std::int64_t minute = 60'000;
    const std::int64_t tenth = std::clamp<std::int64_t>(
        std::chrono::milliseconds(options.heartbeat).count() / 10, 1, minute);
    const std::int64_t wanted = timeout.count() < 0 ? tenth : std::min(tenth, timeout.count());
    epoll_event event{};
    int count = 0;
    const auto wait = [&] {
        const Unlocked unlocked(options.mutex);
        count = ::epoll_wait(events_.get(), &event, 1, static_cast<int>(wanted));
    };
    if (options.mutex == nullptr) {
        wait();
    } else {
        const pthread_t user = user_.exchange(0); // Another thread may use the endpoint now.
        if (sleeps_) {
            // Another thread already waits for events. Each wait begins by reading the old events
            // (see arm()), so a second wait would read events that must end the first. Instead,
            // wait until that thread wakes up.
            std::unique_lock lock(*options.mutex, std::adopt_lock);
            woken_.wait_for(lock, std::chrono::milliseconds(wanted));
            lock.release();
        } else {
            sleeps_ = true;
            wait();
            sleeps_ = false;
            woken_.notify_all();
        }
        user_.store(user);
    }
    if (count == 1 && event.data.ptr != nullptr) {
        static_cast<void>(check_descriptors());
    }
    check(now_ns());
}

bool EndpointState::is_check_due(std::int64_t now) const noexcept {
    return now - checked_ns_ >= to_ns(options.heartbeat) / 10;
}

bool EndpointState::check(std::int64_t now) noexcept {
    if (!creator_.is_current()) {
        return false;
    }
    bool any = options.timeout.count() > 0 && is_any_late(now);
    if (any) {
        // The completions of requests that have exceeded EndpointOptions::timeout may already be in
        // the completion queues.
        poll_all();
        end_late_requests(now);
    }
    if (loopback_failed_) {
        restore_loopback();
    }
    if (!is_check_due(now)) {
        return any;
    }
    checked_ns_ = now;
    any = check_descriptors() || any;
    if (shared.needs_loopback && std::ranges::any_of(shared.rails, [](const auto& rail) noexcept {
            return rail->failure == nullptr && (!rail->loopback || rail->loopback->must_abort);
        })) {
        restore_loopback();
    }
    end_undeliverable(now);
    // If the program made no progress for some time, completions may be waiting. Poll them now:
    // otherwise RailSet::drain() would consider a working device dead, because it has reported
    // nothing since a failure.
    any = poll_all() || any;
    shared.polled_ns = now;
    shared.recovers = false;
    for (ChannelLinks& links : channels_) {
        auto& channel = static_cast<ChannelState&>(links);
        const int before = channel.broken();
        channel.check(now);
        any = any || channel.broken() != before;
        shared.recovers =
            shared.recovers || (channel.broken() == 0 && channel.rails().recovering() != 0);
    }
    test_silent_devices(now);
    return any || shared.rail_failed;
}

void EndpointState::test_silent_devices(std::int64_t now) noexcept {
    const std::int64_t heartbeat = to_ns(options.heartbeat);
    constexpr std::int64_t margin = 5'000'000'000;
    for (const auto& owner : shared.rails) {
        SharedRail& rail = *owner;
        // The test is not possible while the port is down: no loopback queue pair can be connected.
        // The test is not possible either if EndpointOptions::ack_timeout is 0: a device then waits
        // for acknowledgements without a time limit.
        if (!std::exchange(rail.silent, false) || rail.failure != nullptr || rail.port_down ||
            options.ack_timeout == 0) {
            rail.tested = false;
            continue;
        }
        if (!rail.tested && now - rail.test_ns >= heartbeat) {
            rail.tested = true;
            rail.test_posted = false;
            rail.test_ns = now;
        }
        if (rail.tested && !rail.test_posted) {
            int error = 0;
            if (!rail.loopback) {
                error = attempt([this] { shared.create_loopback(); }).code().value();
            }
            if (rail.loopback && !rail.loopback->queue.has_room()) {
                rail.test_posted = true; // The work requests in the queue are the test.
            } else if (rail.loopback) {
                ibv_send_wr work = make_write(
                    {}, {.address = reinterpret_cast<std::uintptr_t>(shared.pool.probe_line()),
                         .rkey = rail.probe_line.rkey()});
                error = LoopbackCopy::post(rail, work, nullptr);
                rail.test_posted = error == 0;
            }
            // The time limit begins when the work request is posted. It begins again if posting
            // fails because of too few resources, which also happens on a device that works. It
            // continues if posting fails with EIO, the error of a dead device.
            if (rail.test_posted || error != EIO) {
                rail.test_ns = now;
            }
        }
        if (rail.tested && now - rail.test_ns > margin + shared.retransmission_ns()) {
            shared.fail(rail, "the device reports no completions");
        }
    }
}

bool EndpointState::check_descriptors() noexcept {
    std::array<epoll_event, 16> ready{};
    const int count = ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    bool any = false;
    bool polled = false;
    for (const epoll_event& event :
         std::span(ready).first(static_cast<std::size_t>(std::max(count, 0)))) {
        if (event.data.ptr == nullptr) {
            continue;
        }
        if (event.data.ptr == &timer_) { // Only ends the sleep: arm() calls check().
            std::uint64_t expirations = 0;
            static_cast<void>(::read(timer_.get(), &expirations, sizeof(expirations)));
            continue;
        }
        any = true;
        if (event.data.ptr == async_events_.get()) {
            read_async_events();
            continue;
        }
        // Poll the completion queues before socket_event() ends the channel, because the peer may
        // have sent messages before it closed its socket.
        if (!std::exchange(polled, true)) {
            poll_all();
        }
        auto& channel = *static_cast<ChannelState*>(event.data.ptr);
        if (!channel.socket_event()) {
            static_cast<void>(::epoll_ctl(events_.get(), EPOLL_CTL_DEL, channel.socket(), nullptr));
        }
    }
    return any;
}

bool EndpointState::is_any_late(std::int64_t now) noexcept {
    bool late = false;
    const auto visit = [&](const RequestState& request) {
        late = late || (!request.done && now >= request.deadline);
    };
    shared.sends.for_each(visit);
    shared.receives.for_each(visit);
    shared.one_sided.for_each(visit);
    return late;
}

void EndpointState::end_late_requests(std::int64_t now) noexcept {
    bool stuck = false;
    const auto end = [&](RequestState& request) {
        if (request.done || now < request.deadline) {
            return;
        }
        if (request.channel != nullptr) {
            request.channel->fail(ECONNABORTED, "a request exceeded EndpointOptions::timeout",
                                  &request, ETIMEDOUT);
            if (request.channel->requests_ended()) {
                // This request waits for a completion of the loopback queue pair, which may never
                // arrive.
                stuck = true;
                request.error = ETIMEDOUT;
            }
        } else {
            shared.matcher.remove(static_cast<ReceiveRequest&>(request));
            shared.complete(request, ETIMEDOUT);
        }
    };
    shared.sends.for_each(end);
    shared.receives.for_each(end);
    shared.one_sided.for_each(end);
    if (stuck) {
        end_loopback_requests(0);
    }
}

void EndpointState::end_undeliverable(std::int64_t now) noexcept {
    const SharedRail& first = *shared.rails[0];
    if (!first.port_down || now - first.down_since_ns < shared.detection_ns()) {
        return;
    }
    for (const ChannelLinks& links : channels_) {
        const auto& channel = static_cast<const ChannelState&>(links);
        if (channel.requests_ended() && has_requests(shared, channel)) {
            end_loopback_requests(EHOSTUNREACH);
            return;
        }
    }
}

void EndpointState::end_loopback_requests(int error) noexcept {
    reset_loopback();
    for (ChannelLinks& links : channels_) {
        auto& channel = static_cast<ChannelState&>(links);
        if (channel.requests_ended()) {
            channel.drop_loopback(error);
        }
    }
}

void EndpointState::restore_loopback() noexcept {
    loopback_failed_ = false;
    bool stuck = false;
    for (const auto& rail : shared.rails) {
        if (!rail->loopback || !rail->loopback->failed) {
            continue;
        }
        if (!rail->loopback->idle()) {
            loopback_failed_ = true; // Its work requests are not all flushed yet.
            if (rail->loopback->must_abort) {
                rail->loopback->abort();
                stuck = stuck || rail->loopback->must_abort;
            }
            continue;
        }
        rail->loopback.reset();
    }
    if (stuck) {
        reset_loopback(); // Its work requests would never be flushed.
    }
    read_async_events(); // See attach(): queue pairs were destroyed, and others are created below.
    // Ignore an error: check() calls this function again.
    static_cast<void>(attempt([this] { shared.create_loopback(); }));
}

void EndpointState::reset_loopback() noexcept {
    for (const auto& rail : shared.rails) {
        rail->loopback.reset();
        rail->tested = false;
    }
    const auto flush = [](auto& request) {
        if (!request.done && request.uses_loopback() && request.pending != 0) {
            request.pending = 1;
            request.channel->loopback_completed(request, IBV_WC_WR_FLUSH_ERR);
        }
    };
    shared.receives.for_each(flush);
    shared.one_sided.for_each(flush);
    loopback_failed_ = true; // check() creates new queue pairs.
}

void EndpointState::leave_out_failed_devices() noexcept {
    shared.rail_failed = false;
    if (std::ranges::any_of(shared.rails, [](const auto& rail) noexcept {
            return rail->failure != nullptr && rail->loopback;
        })) {
        reset_loopback(); // A dead device may report no completions.
    }
    // Ignore an error: registrations then continue to fail with the error of the failed device.
    static_cast<void>(attempt([this] { select_registering(); }));
    for (ChannelLinks& links : channels_) {
        auto& channel = static_cast<ChannelState&>(links);
        RailSet& rails = channel.rails();
        for (std::size_t rail = 0; rail < rails.size(); ++rail) {
            if (const char* const failure = shared.rails[rails[rail].device]->failure;
                failure != nullptr) {
                rails.leave_out(rail, EIO, failure);
            }
        }
    }
    if (shared.rails[0]->failure != nullptr) {
        // Without the first device, no channel can receive a message or be connected. So end the
        // receives from any channel.
        shared.receives.for_each([this](ReceiveRequest& receive) {
            if (receive.channel == nullptr && !receive.done) {
                shared.matcher.remove(receive);
                shared.complete(receive, EIO);
            }
        });
    }
}

void EndpointState::read_async_events() noexcept {
    if (async_events_ == nullptr) {
        return;
    }
    const std::vector<DeviceEvent> events = async_events_->take();
    if (events.empty()) {
        return;
    }
    // Poll the completion queues before processing the events: the status of a failed completion
    // describes the cause of a failure better than an event.
    poll_all();
    for (const DeviceEvent& event : events) {
        async_event(event.device, event.event);
        if (event.event.type == IBV_EVENT_DEVICE_FATAL) {
            // The async_fd of a removed device always reports an error, which would end each
            // epoll_wait(2) at once. Therefore the descriptor is removed from the epoll set.
            static_cast<void>(
                ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, event.device->async_fd, nullptr));
        }
    }
}

void EndpointState::async_event(const ibv_context* device, const AsyncEvent& event) noexcept {
    for (std::size_t r = 0; r < shared.rails.size(); ++r) {
        SharedRail& rail = *shared.rails[r];
        if (rail.pd.context().native() != device) {
            continue;
        }
        switch (event.type) {
            case IBV_EVENT_DEVICE_FATAL:
                shared.fail(rail, "a device of this side has failed (IBV_EVENT_DEVICE_FATAL)");
                break;
            case IBV_EVENT_CQ_ERR:
                if (event.is_of(rail.cq)) {
                    shared.fail(rail,
                                "a completion queue of this side has failed "
                                "(IBV_EVENT_CQ_ERR)");
                }
                break;
            case IBV_EVENT_SRQ_ERR:
                if (event.is_of(rail.srq)) {
                    shared.fail(rail,
                                "a shared receive queue of this side has failed "
                                "(IBV_EVENT_SRQ_ERR)");
                }
                break;
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
            case IBV_EVENT_QP_LAST_WQE_REACHED:
                queue_pair_event(r, event);
                break;
            case IBV_EVENT_PORT_ERR:
            case IBV_EVENT_PORT_ACTIVE:
                if (event.port == options.port) {
                    port_event(r, event.type == IBV_EVENT_PORT_ERR);
                }
                break;
            default:
                break;
        }
    }
}

bool EndpointState::works(std::size_t rail) noexcept {
    read_async_events();
    if (shared.rail_failed) {
        leave_out_failed_devices();
    }
    return registering.works(rail);
}

void EndpointState::port_event(std::size_t rail, bool down) noexcept {
    shared.rails[rail]->set_port_down(down);
    if (down) {
        return;
    }
    for (ChannelLinks& channel : channels_) {
        static_cast<ChannelState&>(channel).rails().port_active(rail);
    }
}

void EndpointState::queue_pair_event(std::size_t rail, const AsyncEvent& event) noexcept {
    const bool last_receive = event.type == IBV_EVENT_QP_LAST_WQE_REACHED;
    if (setup_ != nullptr && event.is_of(setup_->queue_pair())) {
        shared.fail(
            *shared.rails[rail],
            "the UD queue pair of the prepared channels has failed (an asynchronous event)");
        return;
    }
    std::optional<Loopback>& loopback = shared.rails[rail]->loopback;
    if (loopback && event.is_of(loopback->queue_pair)) {
        // abort() moves the queue pair to the error state, so that all its work requests are
        // flushed. restore_loopback() then creates another queue pair.
        loopback->abort();
        loopback_failed_ = true;
        return;
    }
    for (ChannelLinks& links : channels_) {
        auto& channel = static_cast<ChannelState&>(links);
        const std::size_t index = channel.rails().rail_of(event);
        if (index == channel.rails().size()) {
            continue;
        }
        if (last_receive) {
            channel.rails()[index].last_receive = true;
            shared.wake(channel); // RailRecovery continues.
        } else if (event.type == IBV_EVENT_QP_FATAL) {
            channel.rails().leave_out(index, EIO,
                                      "a queue pair of this side has failed (IBV_EVENT_QP_FATAL)");
        } else if (event.type == IBV_EVENT_QP_ACCESS_ERR) {
            channel.fail(ECONNRESET,
                         "the peer has accessed memory of this side without permission "
                         "(IBV_EVENT_QP_ACCESS_ERR)");
        } else {
            channel.fail(ECONNRESET,
                         "the peer has sent an invalid request to this side's device "
                         "(IBV_EVENT_QP_REQ_ERR)");
        }
    }
}

} // namespace rdmabuf::transport::detail
