// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT CloseXrcd {
    static constexpr const char* name = "ibv_close_xrcd";
    static int call(ibv_xrcd* domain) noexcept;
};
} // namespace detail

/// A domain of eXtended Reliable Connections (XRC). With RC, each process of one machine needs a
/// queue pair for each process of another machine. With XRC, one queue pair to a machine reaches
/// all shared receive queues of a domain there, so the number of queue pairs no longer grows with
/// the number of processes on the other machine.
///
/// The sender has a queue pair of the type QueuePairType::xrc_send. The receiving machine has one
/// of the type xrc_receive in the domain, which consumes no receives itself: each request names the
/// SharedReceiveQueue in the domain that takes the message (QueuePair::post_to_srq()).
///
/// Copies share the domain. Shared receive queues and queue pairs made with it keep it alive.
/// ibv_open_xrcd(3).
class RDMABUF_EXPORT XrcDomain {
  public:
    /// Opens a domain that only this process uses.
    /// @throws Error EOPNOTSUPP if the device has no XRC; ENOMEM; EBADF when @p context was closed
    explicit XrcDomain(const Context& context);
    /// Opens the domain of a file, and creates the domain if no process has opened it yet. All
    /// processes that open the same file on the same device share the domain. The descriptor stays
    /// the caller's and may be closed afterwards.
    /// @throws Error as above, and EINVAL for a descriptor that is not of a file
    XrcDomain(const Context& context, int fd);

    [[nodiscard]] ibv_xrcd* native() const noexcept { return handle_.get(); }
    /// @throws Error EBADF when this was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("XrcDomain::context", "XrcDomain");
    }
    /// The caller closes the domain from now on.
    [[nodiscard]] ibv_xrcd* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or objects made with it, exist
    void close() { handle_.close(); }

  private:
    detail::shared_handle<ibv_xrcd, detail::CloseXrcd, Context> handle_;
};

} // namespace rdmabuf
