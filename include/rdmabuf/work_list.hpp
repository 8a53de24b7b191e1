// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <rdmabuf/memory_window.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/send_queue_size.hpp>
#include <rdmabuf/status.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

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
    /// @param call    a function that calls ibv_post_send(3) or ibv_post_recv(3) and returns its
    ///                result. The arguments are the first request and the address of @p failed. @p
    ///                call is not called for an empty list.
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
        request->next = request + 1; // post() ends the chain
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
///     qp.post(list, failed).throw_if_failed("ibv_post_send");
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
