// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <pthread.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/list.hpp>
#include <rdmabuf/transport/detail/peer_setup.hpp>
#include <rdmabuf/transport/detail/setup_queue_pair.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::transport::detail {

[[nodiscard]] inline ErrorInfo error_info(int error, const char* message) {
    return {error, "", message};
}

/// Checks, in builds without NDEBUG, that only one thread at a time uses an endpoint and its
/// channels. Each function that uses them has a OneThread object while it runs. An assertion fails
/// if two threads have such objects at the same time. With NDEBUG, this class does nothing.
class [[maybe_unused]] OneThread {
  public:
    /// @param user  the thread that has a OneThread object for this endpoint; 0 if there is none
    explicit OneThread([[maybe_unused]] std::atomic<pthread_t>& user) noexcept
#ifndef NDEBUG
        : user_(user), outer_(user.exchange(pthread_self())) {
        assert((outer_ == 0 || outer_ == pthread_self()) &&
               "two threads use the same Endpoint, or its channels, at the same time");
    }
    ~OneThread() {
        user_.store(outer_);
    }
#else
    {
    }
    ~OneThread() = default;
#endif
    OneThread(const OneThread&) = delete;
    OneThread& operator=(const OneThread&) = delete;

#ifndef NDEBUG
  private:
    std::atomic<pthread_t>& user_;
    /// The previous value of `user`: this thread if a calling function also has a OneThread object;
    /// otherwise 0.
    pthread_t outer_;
#endif
};

class AsyncEventQueue;

/// The state that an Endpoint shares with its listeners, connectors and channels.
class RDMABUF_EXPORT EndpointState : public std::enable_shared_from_this<EndpointState> {
  public:
    /// Checks the options, and creates the queues and buffers of the endpoint.
    /// @param layout  the value of state_layout with which the program was compiled. Fails with
    ///                EINVAL if it is not the value of the library.
    static Result<std::shared_ptr<EndpointState>> make(std::span<const Context> devices,
                                                       const Resolver& resolver,
                                                       const EndpointOptions& options,
                                                       std::size_t layout) noexcept;

    /// Only make() calls this constructor.
    EndpointState(std::vector<ProtectionDomain> protection_domains, Resolver used_resolver,
                  const EndpointOptions& used_options);
    EndpointState(const EndpointState&) = delete;
    EndpointState& operator=(const EndpointState&) = delete;
    ~EndpointState();

    // Channels

    /// Adds a channel whose queue pairs are connected. progress() then also processes the
    /// completions of this channel.
    /// @throws Error: those of SharedState::reserve_completions(); std::bad_alloc
    void attach(ChannelState& channel);
    /// Adds the socket of a channel to the epoll descriptor. The channel fails when the peer closes
    /// the socket.
    /// @throws Error with the errno value of epoll_ctl(2)
    void watch_socket(ChannelState& channel, UniqueFd socket);
    /// Ends a channel whose set-up has failed after attach(), and removes it from the endpoint. Has
    /// no effect in a child process after fork(2).
    void abandon(ChannelState& channel) noexcept;
    /// Returns the UD queue pair that all prepared channels of the endpoint use for their setup.
    /// The first call creates it, and throws the errors of the constructor of SetupQueuePair.
    [[nodiscard]] SetupQueuePair& setup_queue_pair();
    using Closing = List<ChannelLinks, &ChannelLinks::closing>;
    /// Waits until all messages of the channels in a list are acknowledged, for at most
    /// EndpointOptions::linger. If the close message can be sent only after this time, waits for
    /// the same time again. Then ends the requests of the channels, and removes the channels from
    /// the endpoint and from the list. After that, ChannelState::broken() returns EBADF for each
    /// channel that had not failed with another error.
    void close(Closing& channels) noexcept;
    /// Like close() for one channel, but returns at once: the caller repeats the call until the
    /// channel is removed.
    /// @param linger  false: the channel is removed even if its messages are not acknowledged
    /// @return true if the channel was removed from the endpoint
    [[nodiscard]] bool try_close(ChannelState& channel, bool linger) noexcept;

    /// Adds an end of a prepared channel that is not connected yet. setup_completed() stores the
    /// datagram of the peer in @p end.
    void add(PreparedEnd& end) noexcept { prepared_ends_.push_back(&end); }
    void remove(PreparedEnd& end) noexcept { prepared_ends_.remove(&end); }

    /// Returns an object that each function must hold while it uses the endpoint or one of its
    /// channels.
    [[nodiscard]] OneThread use() noexcept { return OneThread(user_); }

    // Progress

    /// Polls the completion queues of all devices, and advances the channels that have work. Has no
    /// effect in a child process after fork(2), which does not detach the channels that it
    /// destroys.
    /// @return true if a work request has completed
    bool progress() noexcept;
    /// Waits until a device or a socket reports an event, or a periodic check is due. progress()
    /// must be called afterwards.
    /// @param timeout  maximum time to wait; negative: no limit
    void sleep(std::chrono::milliseconds timeout) noexcept;
    /// Returns the epoll descriptor. After arm() has returned true, it becomes readable when
    /// progress() has something to do.
    [[nodiscard]] int descriptor() const noexcept { return events_.get(); }
    /// Requests an event for the next completion.
    /// @return false if progress() already has something to do, for example because a completion
    ///         has arrived; the caller must then call progress() before sleeping
    bool arm() noexcept;

    /// Processes an asynchronous event of a device of the endpoint:
    ///   - IBV_EVENT_DEVICE_FATAL, and IBV_EVENT_CQ_ERR and IBV_EVENT_SRQ_ERR of a queue that all
    ///     channels share: the queue pairs of the device are no longer used. The channels whose
    ///     first queue pair is on the device end with EIO.
    ///   - IBV_EVENT_QP_FATAL of a queue pair of a channel: the queue pair is no longer used. If it
    ///     is the first queue pair, the channel ends with EIO.
    ///   - IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR of a queue pair of a channel: the device
    ///     has rejected a request of the peer and has moved the queue pair to the error state. The
    ///     channel ends with ECONNRESET.
    ///   - IBV_EVENT_QP_LAST_WQE_REACHED of a queue pair of a channel: see
    ///     RailSet::receives_ended().
    ///   - The four IBV_EVENT_QP_* events above, of another queue pair of the endpoint: the device
    ///     of the SetupQueuePair counts as failed; a loopback queue pair is replaced.
    ///   - IBV_EVENT_PORT_ERR ends no channel. A port error does not change the state of an RC
    ///     queue pair: the device retransmits, and if the port becomes active before the last
    ///     retransmission, no data is lost. Otherwise a work request or a keepalive write fails,
    ///     and its queue pair is no longer used. If this is the first queue pair, the channel ends
    ///     with EHOSTUNREACH, and reason() names the port of this side.
    ///   - IBV_EVENT_PORT_ACTIVE: see RailSet::port_active().
    ///   - All other events are ignored, also those of objects that the endpoint does not own.
    /// See ibv_get_async_event(3) and the InfiniBand specification, volume 1, 11.6.3.
    void async_event(const ibv_context* device, const AsyncEvent& event) noexcept;
    /// See Endpoint::works().
    [[nodiscard]] bool works(std::size_t rail) noexcept;

    // Requests

    /// Returns the state of a request of @p channel; see Channel::test().
    [[gnu::always_inline]] Completion test(ChannelState& channel, Request& request) noexcept {
        const OneThread one_thread(user_);
        bool progressed = false;
        if (request.channel == channel.number()) [[likely]] {
            if (request.index == Request::completed_index) {
                const std::size_t bytes = request.generation;
                request = {};
                return {.done = true, .bytes = bytes};
            }
            const std::uint32_t position = SharedState::position_of_receive(request.index);
            if (shared.receives.contains(position) &&
                shared.receives[position].generation == request.generation) {
                ReceiveRequest& receive = shared.receives[position];
                if (!receive.done) {
                    progress();
                    progressed = true;
                }
                if (receive.delivered) [[likely]] {
                    channel.recycle(receive);
                    request = {};
                    return {.done = true,
                            .bytes = static_cast<std::size_t>(receive.bytes),
                            .tag = receive.tag,
                            .channel = channel.number()};
                }
            }
        }
        // Keep this result in a variable. Otherwise, the compiler would also store in memory the
        // results of the return statements above.
        const Completion completion = test_any(channel.number(), request, progressed);
        return completion;
    }
    /// Returns the state of a request.
    /// @param channel     ChannelState::number(), or any_channel
    /// @param progressed  true if progress() was called already
    Completion test_any(std::uint32_t channel, Request& request, bool progressed = false) noexcept;
    /// Returns true if a request has ended and was not reported yet. Makes no progress.
    [[nodiscard]] bool is_done(const Request& request) const noexcept;
    /// Returns true if a request with a `context` has ended and was not reported yet.
    [[nodiscard]] bool has_completions() const noexcept { return !shared.completed.empty(); }
    /// Returns the result of a test of an invalid request.
    [[nodiscard, gnu::noinline]] static Completion failed(int error) noexcept {
        return {.done = true, .error = {error, std::system_category()}};
    }
    /// Returns the number of a channel that has failed, if there is one; see
    /// Endpoint::poll_failed().
    std::optional<std::uint32_t> poll_failed() noexcept;
    /// Reports completed requests that were started with a `context` pointer.
    std::size_t poll_completions(std::span<Completion> completions) noexcept;
    /// Starts a request with memory that the program has not registered. The registration comes
    /// from the cache, or is created. The request holds a lease on the registration until it ends.
    /// @param start  called with the memory; starts the request and returns an errno value
    /// @return the result of @p start; EBADF in a child process after fork(2); ENOMEM; or the errno
    ///         value of a failed registration
    template <class Start>
    int start_leased(std::uintptr_t address, std::size_t length, Access access, Request& request,
                     const Start& start) noexcept {
        const OneThread one_thread(user_);
        if (!creator_.is_current()) {
            return EBADF;
        }
        if (length == 0) {
            return start(BufferRef{});
        }
        LeasedMemory* const memory = shared.leases.take(shared.rails.size());
        if (memory == nullptr) {
            return ENOMEM;
        }
        int error = lease(*memory, address, length, access);
        if (error == 0) {
            error = start(BufferRef{.memory = memory, .address = address, .length = length});
        }
        if (error != 0 || request.index == Request::completed_index) {
            shared.leases.give_back(memory);
            return error;
        }
        shared.hold(*shared.request(request.index), memory);
        return 0;
    }
    /// See Endpoint::irecv().
    int receive_any(const BufferRef& buffer, Tag tag, Tag mask, Request& request,
                    void* context) noexcept;
    /// Implements Channel::probe() and Endpoint::probe().
    /// @param channel  nullptr for messages of any channel
    [[nodiscard]] std::optional<MessageInfo> probe(const ChannelState* channel, Tag tag,
                                                   Tag mask) noexcept;
    /// Implements Channel::mprobe() and Endpoint::mprobe().
    /// @param channel  nullptr for messages of any channel
    [[nodiscard]] std::optional<MatchedMessage> mprobe(const ChannelState* channel, Tag tag,
                                                       Tag mask) noexcept;
    /// Cancels a receive, a transfer list, or the notification of a write; see Channel::cancel()
    /// for the result.
    int cancel(std::uint32_t channel, const Request& request) noexcept;

    const EndpointOptions options;
    Resolver resolver;
    std::vector<ProtectionDomain> pds;
    RegisteringDevices registering;
    /// One cache for each set of devices that the endpoint has used: when a device other than the
    /// first fails, the endpoint creates another cache. The last cache is in use. The earlier
    /// caches are cleared, but kept, because another thread may still use a reference that
    /// Endpoint::cache() returned.
    std::list<RegistrationCache> caches;
    std::atomic<RegistrationCache*> cache{nullptr};
    /// The smallest DeviceAttributes::max_mr_size of all devices, in bytes.
    std::uint64_t max_mr_size = std::numeric_limits<std::uint64_t>::max();
    /// The smallest max_msg_sz (maximum message length) of the ports of all devices, in bytes.
    std::uint64_t max_message = std::numeric_limits<std::uint64_t>::max();
    SharedState shared;
    /// The error of the last failed registration in start_leased().
    ErrorInfo registration_error;

    /// Returns the next number for a channel or an endpoint of this process; never 0.
    [[nodiscard]] static std::uint32_t next_number() noexcept;
    /// The value of Request::channel for receives from any channel of this endpoint.
    const std::uint32_t any_channel = next_number();

  private:
    void report(RequestState& state, Completion& completion) noexcept;

    /// Finds the registration of @p length bytes at @p address in the cache, or creates it. Stores
    /// its lease in @p memory.
    /// @return 0, or the errno value of the failed registration
    [[nodiscard]] int lease(LeasedMemory& memory, std::uintptr_t address, std::size_t length,
                            Access access) noexcept;
    /// Advances the channels in SharedState::busy.
    /// @param polled  true if the caller has just polled all completion queues and has found no
    ///                completion
    void advance_channels(bool polled) noexcept;
    /// Returns the first unexpected message that a receive can take; nullptr if there is none.
    /// Drops matching RTS messages of failed channels on the way, because their data cannot arrive
    /// any more.
    /// @param channel  nullptr for messages of any channel
    [[nodiscard]] UnexpectedMessage* find_message(const ChannelState* channel, Tag tag,
                                                  Tag mask) noexcept;
    /// Polls the completion queues of all devices once.
    /// @return true if a work request has completed
    bool poll() noexcept;
    /// Polls the completion queues of all devices except the first. Then stops using all devices
    /// that have failed, also the first.
    /// @return true if a work request has completed
    bool poll_other_devices() noexcept;
    bool poll(std::size_t device) noexcept;
    /// Posts the receives that are collected in incomplete batches.
    void post_all_receives() noexcept;
    /// Processes a completion of a work request that is not a receive of a shared receive queue.
    void complete(SharedRail& rail, const WorkCompletion& completion) noexcept;
    void receive_completed(SharedRail& rail, const WorkCompletion& completion) noexcept;
    /// Processes a receive completion, unless it is a message on the first queue pair of a channel.
    /// Fails the channel with EPROTO if it is a message on another queue pair.
    static void other_receive_completed(const QueuePairTable::Entry& queue_pair,
                                        const WorkCompletion& completion) noexcept;
    void loopback_completed(SharedRail& shared_rail, const WorkId& id,
                            const WorkCompletion& completion) noexcept;
    void setup_completed(const WorkId& id, const WorkCompletion& completion) noexcept;
    /// Creates new loopback queue pairs for devices whose loopback queue pair has failed or is
    /// missing.
    void restore_loopback() noexcept;
    /// Destroys the loopback queue pairs, so that the devices no longer access the memory of their
    /// requests. The requests are repeated with new loopback queue pairs.
    void reset_loopback() noexcept;
    /// Ends, with @p error, the requests of failed channels that need the loopback queue pairs.
    /// @param error  0 to end only the requests whose RequestState::error is set. The others are
    ///               repeated with new loopback queue pairs.
    void end_loopback_requests(int error) noexcept;
    /// Ends the requests of failed channels that need the loopback queue pairs, if the port of the
    /// first device has been down for so long that a channel would have failed. They could not end
    /// before the port is active again, which may never happen.
    void end_undeliverable(std::int64_t now) noexcept;
    /// Tests the devices that have reported no completion of a channel for a long time. The device
    /// may have failed, or the peer may post no receives. Therefore the work request of the test is
    /// posted on the loopback queue pair, where a working device always completes it, with or
    /// without an error. If the test takes longer than all retransmissions, the device has failed.
    void test_silent_devices(std::int64_t now) noexcept;
    /// Stops using the queue pairs of failed devices. The channels whose first queue pair is on
    /// such a device end with EIO. If the first device of the endpoint has failed, the receives
    /// from any channel end with EIO, too.
    void leave_out_failed_devices() noexcept;
    /// Ends requests whose deadline has passed, and replaces failed loopback queue pairs. If
    /// is_check_due() is true, also processes the events of the sockets and devices, polls all
    /// completion queues, checks all channels (ChannelState::check()), and tests silent devices.
    /// @return true if requests or channels may have ended; if the check was due, also if
    ///         SharedState::rail_failed is true
    bool check(std::int64_t now) noexcept;
    /// Returns true if a tenth of the heartbeat has passed since the last check.
    [[nodiscard]] bool is_check_due(std::int64_t now) const noexcept;
    /// Processes the sockets and the asynchronous events that the epoll descriptor reports.
    /// @return true if there was an event of a socket or an asynchronous event; a channel may then
    ///         have failed
    bool check_descriptors() noexcept;
    void read_async_events() noexcept;
    /// Makes later registrations use only the first device, which every channel needs, and the
    /// other devices that have not failed.
    /// @throws Error, std::bad_alloc
    void select_registering();
    /// Processes an event of the port of a device.
    /// @param down  true if the port has gone down; false if it is active again
    void port_event(std::size_t rail, bool down) noexcept;
    void queue_pair_event(std::size_t rail, const AsyncEvent& event) noexcept;
    /// Releases the requests of a channel, and removes the channel from the endpoint. Called when
    /// the devices no longer access the memory of these requests, or after a time limit.
    void forget(ChannelState& channel) noexcept;
    /// Removes a channel from the endpoint without waiting for its requests.
    void detach(ChannelState& channel) noexcept;
    /// Continues to close one channel, without waiting. The parameters and the result are those of
    /// try_close().
    [[nodiscard]] bool advance_close(ChannelState& channel, bool linger) noexcept;
    /// Returns true if RailSet::receives_ended() is true for all queue pairs of a failed channel,
    /// or if EndpointOptions::read_async_events is false.
    /// @param waited  the time since the channel has failed, in nanoseconds
    [[nodiscard]] bool receives_ended(ChannelState& channel, std::int64_t waited) const noexcept;
    /// Polls the completion queues until they are empty, but at most 4096 times.
    /// @return true if a work request has completed
    bool poll_all() noexcept;
    /// Returns true if a request has exceeded EndpointOptions::timeout.
    [[nodiscard]] bool is_any_late(std::int64_t now) noexcept;
    void end_late_requests(std::int64_t now) noexcept;
    /// Starts `timer_` if SharedState::recovers is true; otherwise stops it. While it runs, it
    /// expires ten times per EndpointOptions::heartbeat.
    void set_timer() noexcept;

    List<ChannelLinks, &ChannelLinks::all> channels_;
    /// The queue pair that setup_queue_pair() returns; nullptr before its first call.
    std::unique_ptr<SetupQueuePair> setup_;
    List<PreparedEnd, &PreparedEnd::link> prepared_ends_;
    /// The number of calls of progress(), modulo 256. When it becomes 0, progress() calls check().
    std::uint8_t calls_ = 0;
    bool loopback_failed_ = false;
    /// True if a close message was not acknowledged, and no channel was attached since then.
    /// Channels with sockets are then closed without waiting for this acknowledgement: programs
    /// close many channels one after another, and all of them can lead to an unreachable peer.
    bool close_unacknowledged_ = false;
    std::int64_t checked_ns_ = 0;
    /// The epoll descriptor for the completion channels and the asynchronous events of the devices,
    /// for the sockets of the channels, and for the timer.
    UniqueFd events_;
    /// A timerfd(2), which runs while a channel recovers. It makes descriptor() readable, so that a
    /// sleeping program calls check(): a failed device may report no further events.
    UniqueFd timer_;
    bool timer_runs_ = false;
    /// Reads the asynchronous events of the devices; nullptr if EndpointOptions::read_async_events
    /// is false.
    std::unique_ptr<AsyncEventQueue> async_events_;
    std::atomic<pthread_t> user_{0};
    /// With EndpointOptions::mutex: true while a thread sleeps until the epoll descriptor is
    /// readable. Other threads then sleep until this thread has woken.
    bool sleeps_ = false;
    std::condition_variable woken_;
    rdmabuf::detail::CreatorProcess creator_;
};

/// Detects that a program was compiled with headers in which one of these objects has another size
/// than in the library. The inlined functions of such a program would not find the members of
/// objects that the library has allocated; see make().
inline constexpr std::size_t state_layout =
    ((sizeof(EndpointState) * 31 + sizeof(ChannelState)) * 31 + sizeof(SharedRail)) * 31 +
    sizeof(ReceiveRequest) + sizeof(SendRequest) + sizeof(EndpointOptions);

} // namespace rdmabuf::transport::detail
