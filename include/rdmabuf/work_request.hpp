// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf {

/// The size of a send queue for a number of outstanding requests. SendList::size_needed() computes
/// the size for a list. The first three members have the same names and meanings as in
/// QueuePairOptions:
///
///     const SendQueueSize size = 4 * list.size_needed(); // up to 4 copies of the list outstanding
///     options.max_send_wr = size.max_send_wr;
///     options.max_send_sge = size.max_send_sge;
///     options.max_inline_data = size.max_inline_data;
///
/// The rules, which also hold for WorkBatch and QueuePair::post_*():
///   - Each request uses one entry of the send queue, whatever its number of scatter-gather entries
///     or inline bytes.
///   - An entry is free again when a completion of its request, or of a later request of the same
///     queue pair, has been polled from the completion queue. Unsignaled requests generate no
///     completion. So at least one of every max_send_wr consecutive requests must be signaled.
///   - A completion queue needs one entry for each outstanding request of its queue pairs, signaled
///     or not, because every request generates a completion when the queue pair fails.
///   - The device may create a larger queue. PreparedQueuePair::capacities() has its size.
struct SendQueueSize {
    /// The number of requests.
    std::uint32_t max_send_wr = 0;
    /// The maximum number of scatter-gather entries of a request. Inline data also counts, because
    /// each range of inline data is one entry.
    std::uint32_t max_send_sge = 0;
    /// The maximum number of inline bytes of a request.
    std::uint32_t max_inline_data = 0;
    /// The number of signaled requests, which is the number of completions if all requests succeed
    /// and QueuePairOptions::signal_all is not set. If this number is 0, the entries of the
    /// requests become free only after a later signaled request has completed.
    std::uint32_t signaled = 0;

    /// Returns the size of a send queue that has room for the requests of both @p a and @p b.
    [[nodiscard]] friend constexpr SendQueueSize operator+(const SendQueueSize& a,
                                                           const SendQueueSize& b) noexcept {
        return {.max_send_wr = a.max_send_wr + b.max_send_wr,
                .max_send_sge = std::max(a.max_send_sge, b.max_send_sge),
                .max_inline_data = std::max(a.max_inline_data, b.max_inline_data),
                .signaled = a.signaled + b.signaled};
    }
    /// Returns the size of a send queue that has room for @p times copies of the requests of @p
    /// size.
    [[nodiscard]] friend constexpr SendQueueSize operator*(std::uint32_t times,
                                                           const SendQueueSize& size) noexcept {
        return {.max_send_wr = times * size.max_send_wr,
                .max_send_sge = size.max_send_sge,
                .max_inline_data = size.max_inline_data,
                .signaled = times * size.signaled};
    }
    friend constexpr bool operator==(const SendQueueSize&, const SendQueueSize&) noexcept = default;

    /// Returns the size of a send queue that has room for @p requests. The function does not read
    /// the member `next` of the requests.
    [[nodiscard]] static SendQueueSize of(std::span<const ibv_send_wr> requests) noexcept {
        SendQueueSize size;
        for (const ibv_send_wr& request : requests) {
            const std::span entries(request.sg_list, static_cast<std::size_t>(request.num_sge));
            std::uint32_t inline_bytes = 0;
            if ((request.send_flags & IBV_SEND_INLINE) != 0) {
                for (const ibv_sge& entry : entries) {
                    inline_bytes += entry.length;
                }
            }
            size = size + SendQueueSize{
                              .max_send_wr = 1,
                              .max_send_sge = static_cast<std::uint32_t>(entries.size()),
                              .max_inline_data = inline_bytes,
                              .signaled = (request.send_flags & IBV_SEND_SIGNALED) != 0 ? 1U : 0U};
        }
        return size;
    }
};

/// A set of flags for one send-side request. See ibv_post_send(3).
enum class SendFlags : unsigned {
    /// The request generates a completion only if it fails, or if QueuePairOptions::signal_all is
    /// set.
    none = 0,
    /// The request starts only after earlier reads and atomics of this queue pair are complete.
    fence = IBV_SEND_FENCE,
    /// The request generates a completion.
    signaled = IBV_SEND_SIGNALED,
    /// The request raises a solicited event at the receiver.
    solicited = IBV_SEND_SOLICITED,
    /// The data is copied into the request, so the memory needs no lkey and can be reused after
    /// posting. The maximum size is max_inline_data of the queue pair. The CPU reads the memory at
    /// sge.addr when the request is posted. So the memory must not be that of a GPU or of the NIC,
    /// and sge.addr must be its CPU address. An assertion checks that the CPU can read sge.addr; in
    /// a build without assertions, posting such a request crashes the program.
    inline_data = IBV_SEND_INLINE,
};
[[nodiscard]] constexpr SendFlags operator|(SendFlags a, SendFlags b) noexcept {
    return static_cast<SendFlags>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

struct WorkOptions {
    /// An ID that the program chooses. The completion of the request contains this ID.
    std::uint64_t wr_id = 0;
    SendFlags flags = SendFlags::signaled;
};

/// The destination of a request on a UD or SRD queue pair: the result of
/// AddressHandle::destination(). `ah` is not owned, and must not be destroyed before the request
/// completes.
struct Destination {
    ibv_ah* ah = nullptr;
    std::uint32_t queue_pair = 0;
    std::uint32_t qkey = 0;
};

// The functions below fill in a request, but do not post it. A SendList or RecvList posts several
// requests in one call. The scatter-gather entries are not copied: they must be valid until the
// request is posted, but not until the request completes.

namespace detail {
/// Returns true if the CPU can read the first and the last byte of each entry. The function makes
/// system calls, so only assertions call it.
[[nodiscard]] RDMABUF_EXPORT bool cpu_can_read(std::span<const ibv_sge> entries) noexcept;

/// Returns true if the request has no inline data, or if the CPU can read the memory of the inline
/// data.
[[nodiscard]] inline bool may_be_sent(std::span<const ibv_sge> local,
                                      WorkOptions options) noexcept {
    return (static_cast<unsigned>(options.flags) & IBV_SEND_INLINE) == 0 || cpu_can_read(local);
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_request(ibv_wr_opcode opcode,
                                                                  std::span<const ibv_sge> local,
                                                                  WorkOptions options) noexcept {
    assert(may_be_sent(local, options) && "the CPU cannot read the memory of inline data");
    // The last members, qp_type and the union of bind_mw and tso, are not initialised. Verbs reads
    // them only for XRC, memory windows and TSO. Initialising them would be one third of the
    // instructions of this function.
    ibv_send_wr request; // NOLINT(*-init-variables,*-member-init)
    request.wr_id = options.wr_id;
    request.next = nullptr;
    // Verbs does not write to sg_list, although the pointer is not const.
    request.sg_list = const_cast<ibv_sge*>(local.data());
    request.num_sge = static_cast<int>(local.size());
    request.opcode = opcode;
    request.send_flags = static_cast<unsigned>(options.flags);
    request.imm_data = 0;
    request.wr = {};
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_rdma(ibv_wr_opcode opcode,
                                                               std::span<const ibv_sge> local,
                                                               RemoteAddress remote,
                                                               WorkOptions options) noexcept {
    ibv_send_wr request = make_request(opcode, local, options);
    request.wr.rdma = {.remote_addr = remote.address, .rkey = remote.rkey};
    return request;
}
} // namespace detail

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send(std::span<const ibv_sge> local,
                                                               WorkOptions options = {}) noexcept {
    return detail::make_request(IBV_WR_SEND, local, options);
}

/// Makes a message with immediate data.
/// @param immediate  in host byte order. The completion at the receiver contains the value in
///                   imm_data, in network byte order.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm(
    std::span<const ibv_sge> local, std::uint32_t immediate, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_IMM, local, options);
    request.imm_data = htobe32(immediate);
    return request;
}

/// Makes a datagram (UD) or a message of an SRD queue pair. For UD, the first 40 bytes of the
/// receive buffer are reserved for the GRH.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_to(
    std::span<const ibv_sge> local, Destination to, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND, local, options);
    request.wr.ud.ah = to.ah;
    request.wr.ud.remote_qpn = to.queue_pair;
    request.wr.ud.remote_qkey = to.qkey;
    return request;
}

/// Makes a datagram (UD) or a message of an SRD queue pair, with immediate data.
/// @param immediate  in host byte order
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_imm_to(
    std::span<const ibv_sge> local, Destination to, std::uint32_t immediate,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = make_send_to(local, to, options);
    request.opcode = IBV_WR_SEND_WITH_IMM;
    request.imm_data = htobe32(immediate);
    return request;
}

/// Makes a message that also invalidates an rkey at the receiver. @p rkey must be the rkey of a
/// memory window of type 2 that is bound on the receiving queue pair. The receive completion has
/// the flag IBV_WC_WITH_INV and the rkey in invalidated_rkey. RC and UC queue pairs support this
/// request, on devices with IBV_DEVICE_MEM_MGT_EXTENSIONS.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_send_inv(
    std::span<const ibv_sge> local, std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_SEND_WITH_INV, local, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Makes a request that invalidates the rkey of a local memory window of type 2. The window must be
/// bound on the queue pair to which the request is posted; afterwards it is not bound. The request
/// has no data. The device needs IBV_DEVICE_MEM_MGT_EXTENSIONS.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_local_inv(
    std::uint32_t rkey, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_LOCAL_INV, {}, options);
    request.invalidate_rkey = rkey;
    return request;
}

/// Makes a request that binds a memory window of type 2 to a part of a region. The request has no
/// data. RC and UC queue pairs support this request.
/// @param window  the window, with its current rkey
/// @param rkey    the rkey that the window gets: its current rkey with another lowest byte, such as
///                the result of ibv_inc_rkey(3)
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_bind(ibv_mw* window, std::uint32_t rkey,
                                                               const ibv_mw_bind_info& part,
                                                               WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_BIND_MW, {}, options);
    request.bind_mw.mw = window;
    request.bind_mw.rkey = rkey;
    request.bind_mw.bind_info = part;
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_write(std::span<const ibv_sge> local,
                                                                RemoteAddress remote,
                                                                WorkOptions options = {}) noexcept {
    return detail::make_rdma(IBV_WR_RDMA_WRITE, local, remote, options);
}

/// Makes an RDMA write with immediate data, which consumes a receive at the peer.
/// @param immediate  in host byte order
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_write_imm(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint32_t immediate,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_rdma(IBV_WR_RDMA_WRITE_WITH_IMM, local, remote, options);
    request.imm_data = htobe32(immediate);
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_read(std::span<const ibv_sge> local,
                                                               RemoteAddress remote,
                                                               WorkOptions options = {}) noexcept {
    return detail::make_rdma(IBV_WR_RDMA_READ, local, remote, options);
}

/// Makes an atomic compare-and-swap of the eight bytes at @p remote, whose address must be a
/// multiple of 8. If the eight bytes are equal to @p expected, they are set to @p swap. The NIC
/// writes the previous eight bytes to @p local. The operation is atomic with respect to other
/// requests to the same device. It is atomic with respect to the CPU only if the device reports
/// IBV_ATOMIC_GLOB.
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_compare_swap(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint64_t expected,
    std::uint64_t swap, WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_ATOMIC_CMP_AND_SWP, local, options);
    request.wr.atomic.remote_addr = remote.address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = expected;
    request.wr.atomic.swap = swap;
    return request;
}

/// Makes an atomic fetch-and-add: adds @p addend to the eight bytes at @p remote. The NIC writes
/// the previous eight bytes to @p local. The rules for alignment and atomicity are those of
/// make_compare_swap().
[[nodiscard, gnu::always_inline]] inline ibv_send_wr make_fetch_add(
    std::span<const ibv_sge> local, RemoteAddress remote, std::uint64_t addend,
    WorkOptions options = {}) noexcept {
    ibv_send_wr request = detail::make_request(IBV_WR_ATOMIC_FETCH_AND_ADD, local, options);
    request.wr.atomic.remote_addr = remote.address;
    request.wr.atomic.rkey = remote.rkey;
    request.wr.atomic.compare_add = addend;
    return request;
}

[[nodiscard, gnu::always_inline]] inline ibv_recv_wr make_recv(std::span<const ibv_sge> local,
                                                               std::uint64_t wr_id = 0) noexcept {
    return {.wr_id = wr_id,
            .next = nullptr,
            .sg_list = const_cast<ibv_sge*>(local.data()),
            .num_sge = static_cast<int>(local.size())};
}

namespace detail {
/// An array of work requests, each of which points to the next request.
template <class Request, std::size_t Capacity>
class RequestChain {
    static_assert(Capacity > 0);

  public:
    RequestChain(const RequestChain&) = delete;
    RequestChain& operator=(const RequestChain&) = delete;

    /// Returns the number of requests, which is at most the capacity.
    [[nodiscard]] std::size_t size() const noexcept {
        return static_cast<std::size_t>(end_ - storage_.requests);
    }
    /// Returns true if a request was dropped because the list was full. Such a list cannot be
    /// posted (E2BIG).
    [[nodiscard]] bool overflowed() const noexcept { return overflowed_; }
    /// Removes all requests. Afterwards overflowed() is false.
    void clear() noexcept {
        end_ = storage_.requests;
        overflowed_ = false;
    }

    /// Posts the requests with one C call, for QueuePair::post() and SharedReceiveQueue::post().
    /// @param call    a function that calls a verbs function such as ibv_post_send(3) and returns
    ///                its result. The arguments are the first request and the address of @p failed.
    ///                @p call is not called for an empty list, or if overflowed() is true.
    /// @param failed  after an error, the first request that was not posted
    template <class Call>
    [[gnu::always_inline]] Status post(Call call, Request*& failed) noexcept {
        if (end_ == storage_.requests) [[unlikely]] {
            return {};
        }
        if (overflowed_) [[unlikely]] {
            failed = storage_.requests;
            return Status(E2BIG);
        }
        end_[-1].next = nullptr;
        const Status status(call(storage_.requests, &failed));
        // The C call needs a null pointer in the last request. After the call, the last request
        // points to the next free element again, so that requests can be added.
        end_[-1].next = end_;
        return status;
    }

  protected:
    [[nodiscard]] std::span<const Request> requests() const noexcept {
        return {storage_.requests, size()};
    }

    // The storage is not initialised, because append() writes each request before it is used.
    RequestChain() noexcept : end_(storage_.requests) {}
    ~RequestChain() = default;

    /// Adds a request to the list.
    /// @param make  a function that returns the request. The request is constructed in the list
    ///              without a copy.
    template <class Make>
    [[gnu::always_inline]] void append(Make make) noexcept {
        assert(size() < Capacity && "the list is full: its Capacity is too small");
        if (end_ == storage_.requests + Capacity) [[unlikely]] {
            overflowed_ = true;
            return;
        }
        auto* const request = ::new (static_cast<void*>(end_)) Request(make());
        end_ = request + 1;
        request->next = request + 1; // post() sets the last `next` to null
    }

  private:
    /// The union prevents the initialisation of its member `requests`.
    union Storage {
        Storage() noexcept {}       // NOLINT(*-use-equals-default,*-member-init)
        Request requests[Capacity]; // NOLINT(*-avoid-c-arrays): pointers walk over it
    };

    Storage storage_;
    Request* end_;
    bool overflowed_ = false;
};
} // namespace detail

/// A list of send-side requests that QueuePair::post() posts in one call. The object contains all
/// requests and allocates no memory. The same list can be posted several times. A span of
/// scatter-gather entries is not copied: the entries must be valid until the list is posted. The
/// single entry of compare_swap() and fetch_add() is copied.
///
/// A list has room for @p Capacity requests. Adding more requests is an error of the program, which
/// an assertion reports. In a build without assertions, the request is dropped, and post() posts
/// nothing and returns E2BIG. Posting an empty list does nothing and succeeds.
///
///     SendList<2> list;
///     list.write({&payload, 1}, remote, {.flags = SendFlags::none});
///     list.send({&notice, 1});
///     ibv_send_wr* failed = nullptr;
///     qp.post(list, failed).throw_if_failed();
template <std::size_t Capacity>
class SendList : public detail::RequestChain<ibv_send_wr, Capacity> {
  public:
    SendList() noexcept {} // NOLINT(*-use-equals-default,*-member-init)

    [[gnu::always_inline]] void send(std::span<const ibv_sge> local,
                                     WorkOptions options = {}) noexcept {
        this->append([&] { return make_send(local, options); });
    }
    [[gnu::always_inline]] void send_imm(std::span<const ibv_sge> local, std::uint32_t immediate,
                                         WorkOptions options = {}) noexcept {
        this->append([&] { return make_send_imm(local, immediate, options); });
    }
    [[gnu::always_inline]] void send_to(std::span<const ibv_sge> local, Destination to,
                                        WorkOptions options = {}) noexcept {
        this->append([&] { return make_send_to(local, to, options); });
    }
    [[gnu::always_inline]] void send_imm_to(std::span<const ibv_sge> local, Destination to,
                                            std::uint32_t immediate,
                                            WorkOptions options = {}) noexcept {
        this->append([&] { return make_send_imm_to(local, to, immediate, options); });
    }
    [[gnu::always_inline]] void send_inv(std::span<const ibv_sge> local, std::uint32_t rkey,
                                         WorkOptions options = {}) noexcept {
        this->append([&] { return make_send_inv(local, rkey, options); });
    }
    [[gnu::always_inline]] void local_inv(std::uint32_t rkey, WorkOptions options = {}) noexcept {
        this->append([&] { return make_local_inv(rkey, options); });
    }
    /// Adds a request that binds a memory window of type 2. After the list was posted, pass @p rkey
    /// to window.set_rkey(). A list must not bind the same window twice, because some providers
    /// read the current rkey from the window when the list is posted.
    /// @param rkey  window.next_rkey()
    [[gnu::always_inline]] void bind(const MemoryWindow& window, std::uint32_t rkey,
                                     const MemoryWindowBinding& binding,
                                     WorkOptions options = {}) noexcept {
        this->append([&] { return make_bind(window.native(), rkey, binding.native(), options); });
    }
    [[gnu::always_inline]] void write(std::span<const ibv_sge> local, RemoteAddress remote,
                                      WorkOptions options = {}) noexcept {
        this->append([&] { return make_write(local, remote, options); });
    }
    [[gnu::always_inline]] void write_imm(std::span<const ibv_sge> local, RemoteAddress remote,
                                          std::uint32_t immediate,
                                          WorkOptions options = {}) noexcept {
        this->append([&] { return make_write_imm(local, remote, immediate, options); });
    }
    [[gnu::always_inline]] void read(std::span<const ibv_sge> local, RemoteAddress remote,
                                     WorkOptions options = {}) noexcept {
        this->append([&] { return make_read(local, remote, options); });
    }
    [[gnu::always_inline]] void compare_swap(const ibv_sge& local, RemoteAddress remote,
                                             std::uint64_t expected, std::uint64_t swap,
                                             WorkOptions options = {}) noexcept {
        this->append(
            [&] { return make_compare_swap(copy(local), remote, expected, swap, options); });
    }
    [[gnu::always_inline]] void fetch_add(const ibv_sge& local, RemoteAddress remote,
                                          std::uint64_t addend, WorkOptions options = {}) noexcept {
        this->append([&] { return make_fetch_add(copy(local), remote, addend, options); });
    }

    /// Returns the size of a send queue for the requests that are now in this list.
    [[nodiscard]] SendQueueSize size_needed() const noexcept {
        return SendQueueSize::of(this->requests());
    }

  private:
    /// Copies the scatter-gather entry of an atomic request into the list, because the caller's
    /// entry may be a temporary, such as the result of Region::sge().
    [[gnu::always_inline]] std::span<const ibv_sge> copy(const ibv_sge& local) noexcept {
        ibv_sge& entry = atomic_entries_[this->size()];
        entry = local;
        return {&entry, 1};
    }

    // The entries are not initialised, because copy() writes an entry before a request uses it.
    ibv_sge atomic_entries_[Capacity]; // NOLINT(*-avoid-c-arrays)
};

/// A list of receives that QueuePair::post() or SharedReceiveQueue::post() posts in one call. The
/// rules for the capacity are those of SendList.
template <std::size_t Capacity>
class RecvList : public detail::RequestChain<ibv_recv_wr, Capacity> {
  public:
    [[gnu::always_inline]] void recv(std::span<const ibv_sge> local,
                                     std::uint64_t wr_id = 0) noexcept {
        this->append([&] { return make_recv(local, wr_id); });
    }
};

} // namespace rdmabuf
