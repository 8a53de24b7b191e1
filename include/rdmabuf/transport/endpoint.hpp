// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/connector.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/registering.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/listener.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/prepared_channel.hpp>

namespace rdmabuf::transport {

/// An endpoint holds the devices that a process uses, the cache of memory registrations on these
/// devices, and the queues and buffers that all channels of the endpoint share. An endpoint creates
/// listeners and connections. Copies of an endpoint share the same state. Listeners, channels and
/// Memory objects may outlive the Endpoint.
///
/// Only one thread at a time may use an endpoint with all its listeners, connectors and channels.
/// In builds with assertions, an assertion fails if two threads use them at the same time. A
/// program with several threads opens an endpoint in each of them, or uses a lock. The registration
/// cache is thread safe.
class Endpoint {
  public:
    /// Opens an endpoint on 1 to 8 devices.
    /// @param devices  a channel stripes long messages over its devices: the first device of this
    ///                 side is connected to the first device of the peer, the second to the second,
    ///                 and so on. Devices without a counterpart are not used. Short messages use
    ///                 the first device.
    /// @return an endpoint, or an error: EINVAL for invalid options (the message names the option)
    ///         or if the headers of the program are not those of the library; EOPNOTSUPP if a
    ///         device has no shared receive queues (the message names the device); and the errors
    ///         of Context::port(), RegistrationCache, the classes for the verbs objects that the
    ///         endpoint creates, such as CompletionQueue, and of epoll_create1(2), epoll_ctl(2),
    ///         timerfd_create(2) and eventfd(2)
    [[nodiscard]] static Result<Endpoint> open(std::span<const Context> devices,
                                               const Resolver& resolver,
                                               const EndpointOptions& options = {}) noexcept {
        auto state = detail::EndpointState::make(devices, resolver, options, detail::state_layout);
        return state ? Result<Endpoint>(Endpoint(*std::move(state)))
                     : Result<Endpoint>(state.error_info());
    }
    /// Opens an endpoint with only one device.
    [[nodiscard]] static Result<Endpoint> open(const Context& device, const Resolver& resolver,
                                               const EndpointOptions& options = {}) noexcept {
        return open(std::span(&device, 1), resolver, options);
    }

    [[nodiscard]] const EndpointOptions& options() const noexcept { return state_->options; }
    /// Returns the number of devices of this endpoint.
    [[nodiscard]] std::size_t rails() const noexcept { return state_->pds.size(); }
    [[nodiscard]] const ProtectionDomain& protection_domain(std::size_t rail = 0) const noexcept {
        return state_->pds[rail];
    }
    /// Returns false if device @p rail has failed. New channels do not use such a device, and the
    /// library registers no memory with it. Always returns true for device 0: every channel needs
    /// this device, so the library does not skip it. Reads the asynchronous events of the devices
    /// first.
    [[nodiscard]] bool works(std::size_t rail) const noexcept { return state_->works(rail); }
    /// Returns the registration cache that register_memory() uses. With
    /// CachePolicy::explicit_invalidation, the program must call RegistrationCache::invalidate()
    /// before it frees registered memory. The endpoint uses another cache after one of its devices
    /// has failed: do not keep the reference.
    [[nodiscard]] RegistrationCache& cache() const noexcept { return *state_->cache.load(); }

    /// Registers memory of any kind with all devices for which works() is true, or reuses a
    /// registration of the cache. Memory that is longer than DeviceAttributes::max_mr_size is
    /// registered in several regions, without the cache, as by register_uncached().
    /// @param access      the access that the requests need: local_write and remote_write for
    ///                    irecv(), local_write for iget(), remote_read for iflush(). Memory that
    ///                    the peer accesses needs remote_write for iput() of the peer, remote_read
    ///                    for iget() of the peer, and remote_atomic for atomic operations of the
    ///                    peer.
    /// @param visibility  the readers to which received data in GPU memory must be visible
    /// @return the memory, or an error of rdmabuf::register_memory(), whose message lists every
    ///         registration method that was tried; EINVAL for Visibility::running_kernel without
    ///         Access::remote_read; for memory that the CPU does not access, also the errors of
    ///         Context::port() and PreparedQueuePair
    [[nodiscard]] Result<Memory> register_memory(
        const void* address, std::size_t length, Access access = default_access,
        Visibility visibility = Visibility::next_kernel) const noexcept {
        return detail::register_address(*state_, reinterpret_cast<std::uintptr_t>(address), length,
                                        access, visibility);
    }
    /// Like register_memory(), but without the cache: the registration exists as long as the
    /// Memory, so the program may free the memory after that. Unlocks EndpointOptions::mutex while
    /// the devices register the memory.
    /// @return the memory, or an error: those of ChunkedRegion and register_memory()
    [[nodiscard]] Result<Memory> register_uncached(
        const void* address, std::size_t length, Access access = default_access,
        Visibility visibility = Visibility::next_kernel) const noexcept {
        return detail::register_uncached(*state_, reinterpret_cast<std::uintptr_t>(address), length,
                                         access, visibility);
    }
    /// Registers a range of a dma-buf with all devices for which works() is true. The caller keeps
    /// the ownership of @p fd and may close it after this call. The registration is not cached: it
    /// exists as long as the Memory. Unlocks EndpointOptions::mutex while the devices register the
    /// memory.
    /// @param offset   offset of the range in the dma-buf, in bytes
    /// @param address  the address by which requests refer to the first byte of the range: for
    ///                 example the GPU pointer of this memory, or any other number. Unlike
    ///                 DmaBufRange::address, 0 is an address too
    /// @return the memory, or an error of DmaBufMR or PreparedQueuePair; EINVAL as in
    ///         register_memory()
    [[nodiscard]] Result<Memory> register_dmabuf(
        int fd, std::uint64_t offset, std::size_t length, std::uintptr_t address,
        Access access = default_access,
        Visibility visibility = Visibility::next_kernel) const noexcept {
        return detail::register_dmabuf(
            *state_, {.fd = fd, .offset = offset, .length = length, .address = address}, access,
            visibility);
    }

    /// Describes memory that the program has registered itself, with protection_domain() of each
    /// device. It may do so while another thread uses the endpoint, also without
    /// EndpointOptions::mutex.
    /// @param host     true if the CPU can read and write the memory at @p address
    /// @param regions  for each device, the regions of the memory, in ascending order of iova and
    ///                 without gaps. The first region must begin with the byte at @p address, and
    ///                 all regions together must have @p length bytes; of a longer region, pass
    ///                 only this part. The ranges must be the same for all devices. A device for
    ///                 which works() is false may have no regions. The program owns the regions,
    ///                 which must outlive the Memory.
    /// @return the memory, or an error: EINVAL if @p regions does not have one element for each
    ///         device, if the element of a working device is empty, if a region is empty, if the
    ///         lengths or iovas are not as described, or if a message of
    ///         EndpointOptions::eager_limit bytes can touch more than 8 regions of memory that the
    ///         CPU cannot access; EINVAL for @p visibility and the errors of PreparedQueuePair as
    ///         in register_memory()
    [[nodiscard]] Result<Memory> use_regions(
        const void* address, std::size_t length, Access access, bool host,
        std::span<const std::span<const LocalChunk>> regions,
        Visibility visibility = Visibility::next_kernel) const noexcept {
        return detail::use_regions(*state_, reinterpret_cast<std::uintptr_t>(address), length,
                                   access, host, regions, visibility);
    }

    /// Listens for peers on a TCP port that the kernel selects.
    /// @param host  the IP address to listen at, or the name of an interface ("ib0"). If it is
    ///              empty, an interface is selected in this order: the interface of the default
    ///              route, an interface with a hardware device, another interface, a bridge such as
    ///              docker0, the loopback interface.
    /// @return a listener, or an error: ENODEV if the interface does not exist, is down or has no
    ///         address; EADDRNOTAVAIL if no interface of this machine has the address; otherwise
    ///         the errno value of the call that failed, for example EMFILE
    [[nodiscard]] Result<Listener> listen(const std::string& host = {}) const noexcept {
        return Listener::open(state_, host);
    }
    /// Starts to connect to the listener that created @p handle. See Connector for the next steps.
    /// @return a connector, or an error: EINVAL for an empty handle; otherwise the errno value of
    ///         socket(2) or connect(2), for example ENETUNREACH if there is no route to the
    ///         listener
    [[nodiscard]] Result<Connector> start_connect(const Handle& handle) const noexcept {
        return Connector::open(state_, handle);
    }
    /// Connects to the listener that created @p handle, and waits until the peer has accepted.
    /// @param timeout  wait_forever for no time limit
    /// @return the channel, or an error of start_connect() or Connector::try_connect(), or
    ///         ETIMEDOUT if @p timeout has passed
    [[nodiscard]] Result<Channel> connect(const Handle& handle,
                                          std::chrono::milliseconds timeout) const noexcept {
        auto connector = start_connect(handle);
        return connector ? connector->wait(timeout) : Result<Channel>(connector.error_info());
    }

    /// Creates one end of a channel without a socket: the program exchanges the addresses of the
    /// two ends. See PreparedChannel for the next steps. The first call also creates a UD queue
    /// pair on the first device, which all prepared channels of the endpoint share.
    /// @return the prepared channel, or an error: ENOSPC if the device supports no completion queue
    ///         that is large enough, and the errors of Context::port(), MemoryRegion and
    ///         PreparedQueuePair
    [[nodiscard]] Result<PreparedChannel> prepare_channel() const noexcept {
        return PreparedChannel::create(state_);
    }

    /// Receives a message from any channel of this endpoint; see Channel::irecv_masked(). Use
    /// test(), cancel() and poll_completions() of the endpoint for this receive.
    /// Completion::channel is the number of the channel from which the message came.
    ///
    /// Until it matches a message, the receive belongs to no channel: it stays posted when channels
    /// fail or are closed, even if no channel is left, because another channel may be connected
    /// later. If no message can come any more, the program must call cancel(). Otherwise the
    /// receive ends only with EIO if the first device fails, or with ETIMEDOUT after
    /// EndpointOptions::timeout. The receive can match messages of a new channel as soon as the
    /// program has the channel, for example from Listener::accept().
    [[nodiscard]] std::error_code irecv(const Memory& memory, void* address, std::size_t length,
                                        Tag tag, Tag mask, Request& request,
                                        void* context = nullptr) const noexcept {
        const detail::OneThread one_thread = state_->use();
        return {state_->receive_any({.memory = memory.state(),
                                     .address = reinterpret_cast<std::uintptr_t>(address),
                                     .length = length},
                                    tag, mask, request, context),
                std::system_category()};
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code irecv(void* address, std::size_t length, Tag tag, Tag mask,
                                        Request& request, void* context = nullptr) const noexcept {
        return {state_->start_leased(reinterpret_cast<std::uintptr_t>(address), length,
                                     Access::local_write | Access::remote_write, request,
                                     [&](const detail::BufferRef& memory) {
                                         return state_->receive_any(memory, tag, mask, request,
                                                                    context);
                                     }),
                std::system_category()};
    }
    /// Returns the error of the last failed registration in a call without a Memory object, for
    /// example in Channel::isend(). The error text lists every registration method that was tried.
    /// The error code is 0 if no registration has failed.
    [[nodiscard]] const ErrorInfo& registration_error() const noexcept {
        return state_->registration_error;
    }
    /// Makes progress, and looks on all channels for an arrived message that irecv() would receive.
    /// Returns the length, tag and channel of the first such message; std::nullopt if there is
    /// none.
    [[nodiscard]] std::optional<MessageInfo> probe(Tag tag, Tag mask) const noexcept {
        const detail::OneThread one_thread = state_->use();
        return state_->probe(nullptr, tag, mask);
    }
    /// Like probe(), but also takes the message, so that only Channel::imrecv() of the channel with
    /// the number MessageInfo::channel receives it. See Channel::mprobe().
    [[nodiscard]] std::optional<MatchedMessage> mprobe(Tag tag, Tag mask) const noexcept {
        const detail::OneThread one_thread = state_->use();
        return state_->mprobe(nullptr, tag, mask);
    }
    /// Returns the state of a request that irecv() of this endpoint started; see Channel::test().
    [[nodiscard]] Completion test(Request& request) const noexcept {
        const detail::OneThread one_thread = state_->use();
        return state_->test_any(state_->any_channel, request);
    }
    /// Tests a request of this endpoint's irecv() until the request is done or @p timeout has
    /// passed; see Channel::wait().
    [[nodiscard]] Completion wait(Request& request,
                                  std::chrono::milliseconds timeout) const noexcept {
        return detail::wait_until_done(
            timeout, [&] { return test(request); },
            [this](std::chrono::milliseconds left) { state_->sleep(left); });
    }
    /// Cancels a receive that irecv() of this endpoint started; see Channel::cancel().
    [[nodiscard]] std::error_code cancel(const Request& request) const noexcept {
        const detail::OneThread one_thread = state_->use();
        return {state_->cancel(state_->any_channel, request), std::system_category()};
    }
    /// Makes progress, and reports completed requests that were started with a `context` pointer.
    /// Each completion is reported once.
    /// @return the number of completions that were stored in @p completions; 0 if no such request
    ///         has completed
    [[nodiscard]] std::size_t poll_completions(std::span<Completion> completions) const noexcept {
        const detail::OneThread one_thread = state_->use();
        state_->progress();
        return state_->poll_completions(completions);
    }
    /// Reports a channel that has failed, even if it has no requests. Each channel is reported
    /// once. The call does not make progress: call progress() first.
    /// @return Channel::number() of the channel, whose state() has the error; std::nullopt if every
    ///         channel that has failed was reported or closed
    [[nodiscard]] std::optional<std::uint32_t> poll_failed() const noexcept {
        const detail::OneThread one_thread = state_->use();
        return state_->poll_failed();
    }
    /// Makes progress on all requests of all channels. Channels without requests cost no time,
    /// except when all channels are checked: at most ten times per EndpointOptions::heartbeat.
    void progress() const noexcept {
        const detail::OneThread one_thread = state_->use();
        state_->progress();
    }
    /// Sleeps until a device or a peer causes an event, or until @p timeout has passed. The call
    /// may also return earlier. It returns at once if poll_completions() has something to report.
    /// After this call, the program must call progress() or test().
    void wait(std::chrono::milliseconds timeout) const noexcept {
        if (!state_->has_completions()) {
            state_->sleep(timeout);
        }
    }
    /// Returns a descriptor for epoll(7) or poll(2). After arm() has returned true, the descriptor
    /// becomes readable when progress() has something to do. While requests are in flight or a
    /// PreparedChannel waits for its peer, the program must also call progress() and arm() at least
    /// ten times per EndpointOptions::heartbeat: arm() checks time limits, and progress() does so
    /// only in one of 256 calls. The endpoint owns the descriptor.
    [[nodiscard]] int descriptor() const noexcept { return state_->descriptor(); }
    /// Processes an asynchronous event that the program has read from a device; see
    /// EndpointOptions::read_async_events. The program must call this function before the endpoint
    /// creates another channel. Otherwise an event of a destroyed queue pair can be applied to a
    /// new ibv_qp at the same address. Events of objects that the endpoint does not own are
    /// ignored.
    /// @param device  the Context from which the program has read the event
    void async_event(const Context& device, const AsyncEvent& event) const noexcept {
        state_->async_event(device.native(), event);
    }
    /// After this call, descriptor() becomes readable at the next event. Also checks time limits,
    /// at most ten times per EndpointOptions::heartbeat. A call that makes progress can end any
    /// request: after arm(), call test() for all requests before waiting on the descriptor. For
    /// requests with a `context`, one call of poll_completions() is enough.
    /// @return false if progress() already has something to do, or poll_completions() has something
    ///         to report: call them, and arm() again, before waiting on the descriptor
    [[nodiscard]] bool arm() const noexcept { return state_->arm() && !state_->has_completions(); }

    /// The default access of register_memory(): devices of this side may write, and peers may write
    /// and read.
    static constexpr Access default_access =
        Access::local_write | Access::remote_write | Access::remote_read;

    // Only wait_any() calls this function.
    [[nodiscard]] detail::EndpointState* state() const noexcept { return state_.get(); }

  private:
    explicit Endpoint(std::shared_ptr<detail::EndpointState> state) noexcept
        : state_(std::move(state)) {}

    std::shared_ptr<detail::EndpointState> state_;
};

} // namespace rdmabuf::transport
