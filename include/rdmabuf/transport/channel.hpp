// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport/detail/channel_state.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>
#include <rdmabuf/transport/transfer_entry.hpp>

namespace rdmabuf::transport {

/// A connection to one peer, for messages in both directions and for one-sided operations (RDMA
/// writes, reads and atomic operations). A channel can be moved but not copied. Only one thread at
/// a time may use an endpoint and all its channels; different endpoints are independent of each
/// other.
///
/// **Messages.** A message matches the first posted receive that accepts its tag. Messages with the
/// same tag arrive in the order in which they were sent. A receive may be posted before or after
/// its message arrives. Up to a limit (see EndpointOptions::depth), messages that no posted receive
/// accepts do not delay other messages.
///
/// **Requests.** The functions with the prefix i, such as isend(), start a request. test(), wait()
/// or wait_any() report its completion; the program may test its requests in any order. If a
/// request is started with a `context` pointer, Endpoint::poll_completions() reports its completion
/// instead. The program must not reuse or free the memory of a request before the completion of
/// this request is reported. Requests make progress only while the program calls functions of the
/// endpoint or of its channels. Therefore the program must call test(), wait() or progress()
/// regularly while a request of this side or of the peer is in flight.
///
/// **Memory without a Memory object.** isend(), issend(), irecv(), irecv_masked(), imrecv(), iput()
/// and iget() also exist without the parameter `memory`. These overloads look up the registration
/// of the memory in the cache of the endpoint (Endpoint::cache()), and hold it until the request
/// ends. If the cache has no registration of the memory, they register the memory, which allocates
/// host memory and calls the driver. Before the program frees memory that was used in such a call,
/// it must call RegistrationCache::invalidate(), unless the cache has CachePolicy::checked. Memory
/// that is longer than DeviceAttributes::max_mr_size must be registered with
/// Endpoint::register_memory() instead.
///
/// Errors of the calls that start a request:
///   - the errors of Endpoint::register_memory(), if the call has no parameter `memory`;
///     Endpoint::registration_error() has the error text
///   - EAGAIN: EndpointOptions::depth requests are in flight; test some of them and call again
///   - EINVAL: the Memory is empty or belongs to another endpoint, and the length is not 0; the
///     RemoteMemory is empty or has regions for fewer devices than the channel uses;
///     TransferEntry::memory or TransferEntry::remote is nullptr; the address of an atomic
///     operation is not a multiple of 8; or its result touches two regions
///   - ERANGE: the range is not inside the Memory, or not inside the RemoteMemory
///   - EACCES: the Memory or the RemoteMemory was not registered with the required access
///   - EMSGSIZE: a notification is longer than max_notification
///   - ENOMEM: no memory for another request
///   - EBADF: the channel is closed, or was created by the parent process before fork(2)
///   - the error that state() returns, if the channel has failed. irecv(), irecv_masked() and
///     imrecv() of an eager message that has already arrived, and iflush(), still work then
///
/// Errors with which a request ends (Completion::error):
///   - EMSGSIZE: the message is longer than the receive buffer; Completion::bytes of the receive is
///     the length of the message. The send fails, too, unless the message was sent as an eager
///     message. The channel remains usable.
///   - ECANCELED: the request was cancelled. The channel remains usable.
///   - ETIMEDOUT: the request took longer than EndpointOptions::timeout, or the peer of a
///     PreparedChannel did not connect within EndpointOptions::handshake
///   - EFAULT: the device of this side could not access the memory of the request, because this
///     memory was unmapped or its exporter revoked it
///   - EACCES: the device of the peer rejected the access, because the memory of the peer was
///     deregistered or its exporter revoked it
///   - ECONNRESET: the peer closed the channel, its process ended, or it sent an RDMA request that
///     the device of this side rejected
///   - EHOSTUNREACH: the peer's device does not respond, because a cable, a switch or the machine
///     failed; or a device of this side does not deliver to its own port, by which it copies and
///     flushes data in device memory
///   - EPROTO: the peer violated the protocol
///   - ECONNABORTED: another request failed with ETIMEDOUT, EFAULT or EACCES, or because its copy
///     or flush of device memory could not be posted, and this ended the channel
///   - ENOMEM: this side had no memory to process a message that arrived
///   - EBADF: this side closed the channel
///   - EIO: the device of this side failed, or a device of the peer failed and lost data that it
///     had acknowledged
///   - another errno value: posting a work request of this request failed with it; or creating the
///     queue pair failed with it by which a device copies and flushes data in device memory
///
/// Every error except EMSGSIZE and ECANCELED ends the channel and all its requests in flight; see
/// reason(). These requests end only after the devices of this side no longer access their memory.
/// If a queue pair can be neither moved to the error state nor destroyed, close() ends them after a
/// time limit. If only a queue pair other than the first fails, for example because of its port, no
/// request fails; see working_rails().
class Channel {
  public:
    Channel(Channel&&) noexcept = default;
    Channel& operator=(Channel&& other) noexcept {
        if (this != &other) {
            static_cast<void>(close());
            endpoint_ = std::move(other.endpoint_);
            channel_ = std::move(other.channel_);
            creator_ = other.creator_;
        }
        return *this;
    }
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;
    ~Channel() { static_cast<void>(close()); }

    // Messages

    /// Sends a message of @p length bytes. Messages of 0 bytes are allowed. The request completes
    /// when the program may reuse the memory of the message. The message may arrive at the peer
    /// later.
    /// @param context  if not nullptr: Endpoint::poll_completions() reports the completion,
    ///                 together with this pointer; if nullptr: test() reports the completion
    [[nodiscard, gnu::always_inline]] std::error_code isend(const Memory& memory,
                                                            const void* address, std::size_t length,
                                                            Tag tag, Request& request,
                                                            void* context = nullptr) noexcept {
        if (!is_usable()) [[unlikely]] {
            return failure(EBADF);
        }
        const detail::OneThread one_thread = endpoint_->use();
        return error_code(channel_->send(buffer(memory, address, length), tag, request, context));
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code isend(const void* address, std::size_t length, Tag tag,
                                        Request& request, void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::remote_read, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.send(memory, tag, request, context);
                            });
    }
    /// Sends a message as isend() does, but the request completes only after the message has
    /// matched a receive of the peer. Therefore a short message also needs an RTS, which costs at
    /// least one more round trip than isend().
    [[nodiscard]] std::error_code issend(const Memory& memory, const void* address,
                                         std::size_t length, Tag tag, Request& request,
                                         void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.send_synchronously(buffer(memory, address, length), tag, request,
                                              context);
        });
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code issend(const void* address, std::size_t length, Tag tag,
                                         Request& request, void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::remote_read, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.send_synchronously(memory, tag, request, context);
                            });
    }
    /// Sends a short message from host memory that need not be registered. The call copies the
    /// message: it starts no request, and the program may reuse the memory at once. The peer
    /// receives the message like a message of isend().
    /// @return no error; EAGAIN if the message cannot be sent now, for example because earlier
    ///         messages wait, the send queue is full, or the peer has no memory left for messages
    ///         without a receive: call progress() and try again; EMSGSIZE if the message is longer
    ///         than max_copied_message or than the eager limit of either end; EBADF after close();
    ///         the error that state() returns, if the channel has failed
    [[nodiscard]] std::error_code send_copy(std::span<const std::byte> message, Tag tag) noexcept {
        return begin(
            [&](detail::ChannelState& channel) { return channel.send_copy(message, tag); });
    }
    /// Receives a message of up to @p length bytes. The memory must be registered with
    /// Access::local_write and Access::remote_write. The request completes when the data has
    /// arrived. See Visibility if a GPU kernel reads the data.
    [[nodiscard, gnu::always_inline]] std::error_code irecv(const Memory& memory, void* address,
                                                            std::size_t length, Tag tag,
                                                            Request& request,
                                                            void* context = nullptr) noexcept {
        return irecv_masked(memory, address, length, tag, full_mask, request, context);
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code irecv(void* address, std::size_t length, Tag tag,
                                        Request& request, void* context = nullptr) noexcept {
        return irecv_masked(address, length, tag, full_mask, request, context);
    }
    /// Receives a message as irecv() does. The receive accepts all messages whose tag is equal to
    /// @p tag in the bits that are set in @p mask. Completion::tag is the tag of the message.
    [[nodiscard, gnu::always_inline]] std::error_code irecv_masked(
        const Memory& memory, void* address, std::size_t length, Tag tag, Tag mask,
        Request& request, void* context = nullptr) noexcept {
        if (!is_usable()) [[unlikely]] {
            return failure(EBADF);
        }
        const detail::OneThread one_thread = endpoint_->use();
        return error_code(
            channel_->receive(buffer(memory, address, length), tag, mask, request, context));
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code irecv_masked(void* address, std::size_t length, Tag tag, Tag mask,
                                               Request& request, void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::local_write | Access::remote_write, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.receive(memory, tag, mask, request, context);
                            });
    }
    /// Returns the length in bytes of the receive that the next message with this tag will match,
    /// if the peer has advertised this receive. If such a message is longer than the eager limit
    /// (if the limit is 0: of any length) and not longer than the receive, isend() writes it by
    /// RDMA at once. The send then completes when it is acknowledged. Any other message above the
    /// eager limit needs an RTS and its answer, which takes a round trip.
    /// @return std::nullopt if no such advertisement has arrived yet, if earlier messages of this
    ///         end wait, or if the channel is closed or has failed
    [[nodiscard]] std::optional<std::uint64_t> advertised_receive(Tag tag) const noexcept {
        return channel_ ? channel_->advertised_receive(tag) : std::nullopt;
    }
    /// Returns true if irecv() will advertise the next @p count receives, provided that each is
    /// longer than the eager limit (if the limit is 0: of any length) and touches at most 8
    /// regions. Each end of a channel can advertise 32 receives at a time. A receive is not
    /// advertised if its message has already arrived, or if an earlier receive, which is not
    /// advertised either, may match the same message.
    /// @param tag    the tag of the receives. If the receives have several tags, call this function
    ///               once for each tag, with the same @p count.
    /// @param count  the total number of receives, whatever their tags
    [[nodiscard]] bool can_advertise(Tag tag, std::size_t count = 1) const noexcept {
        return channel_ && channel_->can_advertise(tag, count);
    }
    /// Makes progress, and looks for an arrived message that irecv_masked() would receive with this
    /// @p tag and @p mask. Returns the length, tag and channel of the first such message;
    /// std::nullopt if there is none, or if the channel is closed.
    [[nodiscard]] std::optional<MessageInfo> probe(Tag tag, Tag mask = full_mask) noexcept {
        return channel_ ? endpoint_->probe(channel_.get(), tag, mask) : std::nullopt;
    }
    /// Like probe(), but also takes the message: no receive other than imrecv() gets it. Until
    /// imrecv() is called, or the channel is destroyed, the message counts towards a limit of this
    /// end: an eager message towards EndpointOptions::unexpected_limit, an RTS towards
    /// EndpointOptions::depth.
    [[nodiscard]] std::optional<MatchedMessage> mprobe(Tag tag, Tag mask = full_mask) noexcept {
        return channel_ ? endpoint_->mprobe(channel_.get(), tag, mask) : std::nullopt;
    }
    /// Receives, as irecv() does, a message that mprobe() of this channel or of the endpoint has
    /// taken.
    /// @return the errors of irecv(), or ESTALE if the message was received before or came from
    ///         another channel
    [[nodiscard]] std::error_code imrecv(const MatchedMessage& message, const Memory& memory,
                                         void* address, std::size_t length, Request& request,
                                         void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.receive_claimed(buffer(memory, address, length), message.number, request,
                                           context);
        });
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code imrecv(const MatchedMessage& message, void* address,
                                         std::size_t length, Request& request,
                                         void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::local_write | Access::remote_write, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.receive_claimed(memory, message.number, request,
                                                               context);
                            });
    }
    /// Cancels a receive, iput_list(), iget_list(), or the notification of iput_notify(). After
    /// success, the request ends with ECANCELED. A receive may still end normally, if its message
    /// was already in flight. A list of which nothing is posted transfers nothing; otherwise, at
    /// most one entry is still transferred after the posted ones. iput_notify() transfers its data.
    /// The notification of a cancelled request is not sent.
    /// @return no error; EALREADY if the request has ended, was cancelled before, or cannot be
    ///         cancelled: a receive that has matched a message, a posted list with at most one
    ///         entry and no notification left to post, a notification that was posted or must be
    ///         posted together with its data, another one-sided request, or a one-sided request of
    ///         a channel that has failed; EINVAL for an empty request, a send, or a request of
    ///         another channel; ESTALE if the completion of the request was reported; EBADF after
    ///         close()
    [[nodiscard]] std::error_code cancel(const Request& request) noexcept {
        if (!channel_) {
            return failure(EBADF);
        }
        const detail::OneThread one_thread = endpoint_->use();
        return {endpoint_->cancel(channel_->number(), request), std::system_category()};
    }

    // One-sided operations

    /// Writes @p length bytes to the peer's memory (RDMA write). The first byte is written at @p
    /// offset in that memory. The request completes when the peer's device has acknowledged the
    /// data. The peer is not notified.
    [[nodiscard]] std::error_code iput(const Memory& memory, const void* address,
                                       std::size_t length, const RemoteMemory& remote,
                                       std::uint64_t offset, Request& request,
                                       void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.put(buffer(memory, address, length), remote, offset, {}, false, request,
                               context);
        });
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code iput(const void* address, std::size_t length,
                                       const RemoteMemory& remote, std::uint64_t offset,
                                       Request& request, void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::local_read, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.put(memory, remote, offset, {}, false, request,
                                                   context);
                            });
    }
    /// Writes data as iput() does, and sends a notification. The peer's notification() returns the
    /// bytes of @p notification after this data, and the data of all earlier iput() calls, has
    /// arrived.
    [[nodiscard]] std::error_code iput_notify(const Memory& memory, const void* address,
                                              std::size_t length, const RemoteMemory& remote,
                                              std::uint64_t offset,
                                              std::span<const std::byte> notification,
                                              Request& request, void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.put(buffer(memory, address, length), remote, offset, notification, true,
                               request, context);
        });
    }
    /// This overload of iput_notify() sends the 8 bytes of @p value as the notification.
    [[nodiscard]] std::error_code iput_notify(const Memory& memory, const void* address,
                                              std::size_t length, const RemoteMemory& remote,
                                              std::uint64_t offset, std::uint64_t value,
                                              Request& request, void* context = nullptr) noexcept {
        return iput_notify(memory, address, length, remote, offset,
                           std::as_bytes(std::span(&value, 1)), request, context);
    }
    /// Reads @p length bytes of the peer's memory (RDMA read). The first byte is at @p offset in
    /// that memory. The local memory must be registered with Access::local_write.
    [[nodiscard]] std::error_code iget(const Memory& memory, void* address, std::size_t length,
                                       const RemoteMemory& remote, std::uint64_t offset,
                                       Request& request, void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.get(buffer(memory, address, length), remote, offset, request, context);
        });
    }
    /// This overload takes no Memory object. The request uses a registration from the endpoint's
    /// cache; see Channel.
    [[nodiscard]] std::error_code iget(void* address, std::size_t length,
                                       const RemoteMemory& remote, std::uint64_t offset,
                                       Request& request, void* context = nullptr) noexcept {
        return begin_leased(address, length, Access::local_write, request,
                            [&](detail::ChannelState& channel, const detail::BufferRef& memory) {
                                return channel.get(memory, remote, offset, request, context);
                            });
    }
    /// Writes all entries of a list to the peer's memory. The request completes when all data is
    /// acknowledged.
    /// @param entries       the transfers. This array must remain valid until the request has
    ///                      completed, and so must the Memory and RemoteMemory objects to which the
    ///                      entries point.
    /// @param notification  bytes that the peer's notification() returns after all data has
    ///                      arrived; std::nullopt: no notification is sent
    [[nodiscard]] std::error_code iput_list(
        std::span<const TransferEntry> entries, Request& request,
        std::optional<std::span<const std::byte>> notification = std::nullopt,
        void* context = nullptr) noexcept {
        PreparedList list;
        const std::error_code error = prepare_put_list(entries, list);
        return error ? error : iput_prepared_list(list, request, notification, context);
    }
    /// Reads all entries of a list from the peer's memory. The parameters have the same meaning as
    /// in iput_list().
    [[nodiscard]] std::error_code iget_list(std::span<const TransferEntry> entries,
                                            Request& request, void* context = nullptr) noexcept {
        PreparedList list;
        const std::error_code error = prepare_get_list(entries, list);
        return error ? error : iget_prepared_list(list, request, context);
    }
    /// Checks the entries of a list, which iput_prepared_list() can then start many times, with
    /// less work for each entry than iput_list().
    /// @param entries  as for iput_list(). They, the Memory and RemoteMemory objects to which they
    ///                 point, and the registrations of this memory must remain unchanged as long as
    ///                 @p list is used.
    /// @param list     output; unchanged after an error
    /// @return EINVAL, ERANGE or EACCES as for iput_list(); EBADF; or the error of a failed channel
    [[nodiscard]] std::error_code prepare_put_list(std::span<const TransferEntry> entries,
                                                   PreparedList& list) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.prepare_list(entries, false, list);
        });
    }
    /// Like prepare_put_list(), for iget_prepared_list().
    [[nodiscard]] std::error_code prepare_get_list(std::span<const TransferEntry> entries,
                                                   PreparedList& list) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.prepare_list(entries, true, list);
        });
    }
    /// Writes all entries of a prepared list, as iput_list() of its entries does. Each call starts
    /// a request of its own. Returns EINVAL if the list was not prepared by prepare_put_list() of
    /// this channel.
    [[nodiscard]] std::error_code iput_prepared_list(
        const PreparedList& list, Request& request,
        std::optional<std::span<const std::byte>> notification = std::nullopt,
        void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.start_list(list, false,
                                      notification.value_or(std::span<const std::byte>()),
                                      notification.has_value(), request, context);
        });
    }
    /// Reads all entries of a prepared list, as iget_list() of its entries does. Each call starts a
    /// request of its own. Returns EINVAL if the list was not prepared by prepare_get_list() of
    /// this channel.
    [[nodiscard]] std::error_code iget_prepared_list(const PreparedList& list, Request& request,
                                                     void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.start_list(list, true, {}, false, request, context);
        });
    }
    /// Adds @p addend to the 8-byte number at @p offset of the peer's memory. The address of this
    /// number must be a multiple of 8. The previous value of the number is written to @p result,
    /// which must be inside @p memory. The peer's memory must be registered with
    /// Access::remote_atomic. See make_compare_swap() for the guarantees of atomicity.
    [[nodiscard]] std::error_code ifetch_add(const Memory& memory, std::uint64_t* result,
                                             const RemoteMemory& remote, std::uint64_t offset,
                                             std::uint64_t addend, Request& request,
                                             void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.atomic(detail::OneSidedRequest::Operation::fetch_add,
                                  buffer(memory, result, sizeof *result), remote, offset, addend, 0,
                                  request, context);
        });
    }
    /// Replaces the 8-byte number at @p offset of the peer's memory by @p swap, if the number is
    /// equal to @p expected. The other parameters and the requirements are the same as for
    /// ifetch_add().
    [[nodiscard]] std::error_code icompare_swap(const Memory& memory, std::uint64_t* result,
                                                const RemoteMemory& remote, std::uint64_t offset,
                                                std::uint64_t expected, std::uint64_t swap,
                                                Request& request,
                                                void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.atomic(detail::OneSidedRequest::Operation::compare_swap,
                                  buffer(memory, result, sizeof *result), remote, offset, swap,
                                  expected, request, context);
        });
    }
    /// Starts a request that completes when the data of all earlier iput() calls is in the memory
    /// of the peer. For this, each queue pair that transfers use reads one byte of the peer's
    /// memory after its own writes.
    [[nodiscard]] std::error_code ifence(Request& request, void* context = nullptr) noexcept {
        return begin(
            [&](detail::ChannelState& channel) { return channel.fence(request, context); });
    }
    /// Makes data that the NICs of this channel wrote to GPU memory visible to the GPU. For this,
    /// each working NIC of the channel reads one byte of the memory. The memory must be registered
    /// with Access::remote_read. The call has no effect on host memory.
    [[nodiscard]] std::error_code iflush(const Memory& memory, const void* address,
                                         std::size_t length, Request& request,
                                         void* context = nullptr) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return channel.flush(buffer(memory, address, length), request, context);
        });
    }

    /// Makes progress, copies the oldest notification of the peer to @p bytes, and removes it from
    /// the queue.
    /// @return the size of the notification in bytes. Errors: EAGAIN if no notification has
    ///         arrived, or if earlier writes of the peer have not all arrived; EMSGSIZE if @p bytes
    ///         is too small: the notification is kept, and the error text has its size; EBADF after
    ///         close()
    [[nodiscard]] Result<std::size_t> notification(std::span<std::byte> bytes) noexcept {
        if (!channel_) {
            return detail::error_info(EBADF, "the channel is closed");
        }
        const detail::OneThread one_thread = endpoint_->use();
        endpoint_->progress();
        return channel_->notification(bytes);
    }
    /// Makes progress, and removes the oldest notification of the peer from the queue. This
    /// overload is for notifications that iput_notify() sends with a value.
    /// @return the value; std::nullopt if the channel is closed, if no notification can be returned
    ///         yet, or if the oldest notification has more than 8 bytes: it stays in the queue
    [[nodiscard]] std::optional<std::uint64_t> notification() noexcept {
        std::uint64_t value = 0;
        if (!channel_) {
            return std::nullopt;
        }
        const detail::OneThread one_thread = endpoint_->use();
        endpoint_->progress();
        const int size = channel_->take_notification(std::as_writable_bytes(std::span(&value, 1)));
        return size >= 0 ? std::optional(value) : std::nullopt;
    }

    // Completion

    /// Returns the state of @p request. If the request is not done yet, makes progress first. The
    /// completion of a request is reported only once; @p request is then empty. For an invalid
    /// request, Completion::done is true and Completion::error is set: ESTALE if @p request is
    /// empty, or a copy of a request whose completion was reported; EINVAL for a request of another
    /// channel; EBADF after close(). A copy of a send that completed inside isend() can be tested
    /// again.
    [[nodiscard, gnu::always_inline]] Completion test(Request& request) noexcept {
        if (!channel_) [[unlikely]] {
            const Completion completion = detail::EndpointState::failed(EBADF);
            return completion;
        }
        return endpoint_->test(*channel_, request);
    }
    /// Tests @p request until the request is done or @p timeout has passed. The call first polls
    /// for a short time and then sleeps.
    /// @param timeout  wait_forever for no time limit
    /// @return the Completion of the request. If @p timeout has passed, Completion::done is false
    ///         and wait() may be called again.
    [[nodiscard]] Completion wait(Request& request, std::chrono::milliseconds timeout) noexcept {
        return detail::wait_until_done(
            timeout, [&] { return test(request); },
            [this](std::chrono::milliseconds left) { endpoint_->sleep(left); });
    }
    /// Makes progress on all requests of the endpoint.
    void progress() noexcept {
        if (channel_) {
            endpoint_->progress();
        }
    }

    /// Returns the number that identifies this channel among all channels of the process; 0 after
    /// close().
    [[nodiscard]] std::uint32_t number() const noexcept {
        return channel_ ? channel_->number() : 0;
    }
    /// Returns the error with which the channel has failed; EBADF after close(); otherwise no
    /// error.
    [[nodiscard]] std::error_code state() const noexcept {
        return {channel_ ? channel_->broken() : EBADF, std::system_category()};
    }
    /// Returns a text that describes the first failure of the channel; an empty text while the
    /// channel works. The text is a constant, which the caller does not free.
    [[nodiscard]] const char* reason() const noexcept {
        return channel_ ? channel_->reason() : "the channel is closed";
    }
    /// Returns the number of requests whose completion was not reported to the program yet. A send
    /// without `context` that completed inside isend() may not be counted.
    [[nodiscard]] std::size_t in_flight() const noexcept {
        return channel_ ? channel_->in_flight() : 0;
    }
    /// Returns the number of queue pairs of the channel, including failed ones; 0 after close().
    /// Long messages are striped over these queue pairs. All devices have the same number of queue
    /// pairs; see EndpointOptions::queue_pairs_per_device.
    [[nodiscard]] std::size_t rails() const noexcept {
        return channel_ ? channel_->rails().size() : 0;
    }
    /// Returns the number of queue pairs that have not failed. If the first queue pair fails, the
    /// channel fails. If another queue pair fails, the first queue pair takes over the remaining
    /// data of the failed one, and a new queue pair replaces the failed one later; see
    /// EndpointOptions::probation.
    [[nodiscard]] std::size_t working_rails() const noexcept {
        std::size_t working = 0;
        for (std::size_t i = 0; i < rails(); ++i) {
            working += channel_->rails().is_used(i) ? 1 : 0;
        }
        return working;
    }
    /// Returns a text that describes why queue pair @p rail has failed; an empty text if the queue
    /// pair works or does not exist. The text is a constant, which the caller does not free.
    [[nodiscard]] const char* rail_reason(std::size_t rail) const noexcept {
        return rail >= rails() || channel_->rails().is_used(rail) ? ""
                                                                  : channel_->rails()[rail].failure;
    }

    /// Closes the channel. The call first waits, for at most EndpointOptions::linger, until queued
    /// messages are sent and acknowledged (at most twice as long, if the close message can be sent
    /// only after this time). Then it ends all remaining requests, for example a message for which
    /// the peer has not posted a receive. It waits up to two seconds until the devices have
    /// completed all work requests, for example the copies of arrived messages to GPU memory. A
    /// program may exit after its requests have completed and close() has returned no error.
    /// @return no error if all messages were acknowledged, or if the peer has closed the channel;
    ///         ETIMEDOUT if some were not acknowledged within EndpointOptions::linger: messages may
    ///         be lost, also those whose sends have completed; otherwise the error with which the
    ///         channel had failed
    std::error_code close() noexcept {
        if (!channel_) {
            return {};
        }
        // In a child process after fork(2), close() sends nothing: the queue pairs belong to the
        // parent process.
        if (creator_.is_current()) {
            detail::EndpointState::Closing list;
            list.push_back(channel_.get());
            endpoint_->close(list);
        }
        return destroy();
    }
    /// Closes the channel as close() does, but without waiting. The program must call this function
    /// until the result is not EAGAIN. Between the calls, the program may use other channels of the
    /// endpoint, and the requests of this channel still make progress. New sends and one-sided
    /// requests on this channel fail with EBADF once the close message is sent.
    /// @param linger  false: closes the channel even if messages of this end are not acknowledged.
    ///                They may be lost, which is not reported as an error. No close message is
    ///                sent: if the channel has no socket, the requests of the peer end with
    ///                EHOSTUNREACH
    /// @return EAGAIN while the channel is not closed yet; otherwise the result of close()
    std::error_code try_close(bool linger = true) noexcept {
        if (!channel_) {
            return {};
        }
        if (creator_.is_current() && !endpoint_->try_close(*channel_, linger)) {
            return {EAGAIN, std::system_category()};
        }
        return destroy();
    }
    /// Closes many channels as close() does. The waiting times of channels of the same endpoint
    /// overlap, so closing them takes about as long as close() of the slowest channel. The
    /// endpoints are processed one after another. Channels that are already closed are skipped.
    /// @return the first error that close() would return for one of the channels
    static std::error_code close_all(std::span<Channel> channels) noexcept {
        std::error_code first_error;
        for (Channel& first : channels) {
            if (!first.channel_) {
                continue;
            }
            const std::shared_ptr<detail::EndpointState> endpoint = first.endpoint_;
            detail::EndpointState::Closing list;
            for (Channel& channel : channels) {
                if (channel.endpoint_ == endpoint && channel.creator_.is_current()) {
                    list.push_back(channel.channel_.get());
                }
            }
            endpoint->close(list);
            for (Channel& channel : channels) {
                if (channel.endpoint_ == endpoint) {
                    const std::error_code error = channel.destroy();
                    first_error = first_error ? first_error : error;
                }
            }
        }
        return first_error;
    }

    // Only wait_any() calls this function.
    [[nodiscard]] detail::EndpointState* endpoint() const noexcept { return endpoint_.get(); }

    // Only Listener, Connector and PreparedChannel call this constructor.
    Channel(std::shared_ptr<detail::EndpointState> endpoint,
            std::unique_ptr<detail::ChannelState> channel) noexcept
        : endpoint_(std::move(endpoint)), channel_(std::move(channel)) {}

  private:
    [[nodiscard]] static detail::BufferRef buffer(const Memory& memory, const void* address,
                                                  std::size_t length) noexcept {
        return {.memory = memory.state(),
                .address = reinterpret_cast<std::uintptr_t>(address),
                .length = length};
    }
    /// Destroys a channel that EndpointState::close() or try_close() has closed, or whose queue
    /// pairs belong to the parent process.
    /// @return the result of close()
    std::error_code destroy() noexcept {
        int state = channel_->broken();
        if (state == EBADF) {
            state = channel_->unacknowledged ? ETIMEDOUT : 0;
        } else if (channel_->close_exchanged()) {
            state = 0;
        }
        channel_.reset();
        endpoint_.reset();
        return {state, std::system_category()};
    }
    [[nodiscard, gnu::always_inline]] static std::error_code error_code(int error) noexcept {
        return error == 0 ? std::error_code() : failure(error);
    }
    [[nodiscard, gnu::noinline, gnu::cold]] static std::error_code failure(int error) noexcept {
        return {error, std::system_category()};
    }
    /// Returns true if the channel is open and was created by this process; false in a child
    /// process after fork(2).
    [[nodiscard]] bool is_usable() const noexcept { return channel_ && creator_.is_current(); }
    template <class Begin>
    [[nodiscard]] std::error_code begin(const Begin& call) noexcept {
        if (!is_usable()) {
            return {EBADF, std::system_category()};
        }
        const detail::OneThread one_thread = endpoint_->use();
        return {call(*channel_), std::system_category()};
    }

    template <class Begin>
    [[nodiscard]] std::error_code begin_leased(const void* address, std::size_t length,
                                               Access access, Request& request,
                                               const Begin& call) noexcept {
        return begin([&](detail::ChannelState& channel) {
            return endpoint_->start_leased(
                reinterpret_cast<std::uintptr_t>(address), length, access, request,
                [&](const detail::BufferRef& memory) { return call(channel, memory); });
        });
    }

    std::shared_ptr<detail::EndpointState> endpoint_;
    std::unique_ptr<detail::ChannelState> channel_;
    rdmabuf::detail::CreatorProcess creator_;
};

} // namespace rdmabuf::transport
