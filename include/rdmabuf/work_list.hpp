// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include <rdmabuf/remote_region.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {

namespace detail {
/// Requests in a row, each pointing to the next.
template <class Request, std::size_t Capacity>
class RequestChain {
    static_assert(Capacity > 0);

  public:
    RequestChain(const RequestChain&) = delete;
    RequestChain& operator=(const RequestChain&) = delete;

    [[nodiscard]] std::size_t size() const noexcept {
        return static_cast<std::size_t>(end_ - storage_.requests);
    }
    void clear() noexcept { end_ = storage_.requests; }

    /// The chain, ended: what the C call takes. The list must not be empty. Before more can be
    /// added it must be reopened, which QueuePair::post does.
    [[nodiscard, gnu::always_inline]] Request& first() noexcept {
        assert(size() > 0);
        end_[-1].next = nullptr;
        return storage_.requests[0];
    }

    /// Lets the chain go on after what first() ended.
    [[gnu::always_inline]] void reopen() noexcept { end_[-1].next = end_; }

  protected:
    // Storage is left as it is: a request is written once, when it is added.
    RequestChain() noexcept : end_(storage_.requests) {}
    ~RequestChain() = default;

    /// @param make  returns the request: made in its place, it need not be copied there
    template <class Make>
    [[gnu::always_inline]] void append(Make make) noexcept {
        assert(size() < Capacity);
        auto* const request = ::new (static_cast<void*>(end_)) Request(make());
        end_ = request + 1;
        request->next = request + 1; // first() ends the chain
    }

  private:
    /// A union, so that it begins uninitialised.
    union Storage {
        Storage() noexcept {}       // NOLINT(*-use-equals-default,*-member-init)
        Request requests[Capacity]; // NOLINT(*-avoid-c-arrays): pointers walk over it
    };

    Storage storage_;
    Request* end_;
};
} // namespace detail

/// Send-side requests chained as they are added, for posting in one call with QueuePair::post.
/// Lives where it is declared, allocates nothing, and can be posted again as it is. The
/// scatter-gather entries are not copied: they must live until the list is posted. Adding more than
/// @p Capacity requests is a bug of the program (an assertion).
///
///     SendList<2> list;
///     list.write({&payload, 1}, remote, {.flags = SendFlags::none});
///     list.send({&notice, 1});
///     ibv_send_wr* failed = nullptr;
///     qp.post(list, failed).throw_if_failed("ibv_post_send");
template <std::size_t Capacity>
class SendList : public detail::RequestChain<ibv_send_wr, Capacity> {
  public:
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
        this->append([&] {
            return make_compare_swap({&local, 1}, remote, expected, swap, options);
        });
    }
    [[gnu::always_inline]] void fetch_add(const ibv_sge& local, RemoteAddress remote,
                                          std::uint64_t addend, WorkOptions options = {}) noexcept {
        this->append([&] { return make_fetch_add({&local, 1}, remote, addend, options); });
    }
};

/// As SendList, for receives.
template <std::size_t Capacity>
class RecvList : public detail::RequestChain<ibv_recv_wr, Capacity> {
  public:
    [[gnu::always_inline]] void recv(std::span<const ibv_sge> local,
                                     std::uint64_t wr_id = 0) noexcept {
        this->append([&] { return make_recv(local, wr_id); });
    }
};

} // namespace rdmabuf
