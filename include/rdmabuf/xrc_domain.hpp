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

/// A domain of eXtended Reliable Connections (XRC). With RC, each process of a machine needs one
/// queue pair for each process of another machine. With XRC, one queue pair to the other machine
/// reaches all shared receive queues of a domain on that machine. So the number of queue pairs does
/// not depend on the number of processes on the other machine.
///
/// The sender has a queue pair of the type QueuePairType::xrc_send. The receiver has a queue pair
/// of the type xrc_receive in the domain. This queue pair has no receives of its own: each request
/// contains the number of the SharedReceiveQueue that receives the message
/// (QueuePair::post_to_srq()).
///
/// Copies share the domain. Shared receive queues and queue pairs that are created with the domain
/// keep it alive. ibv_open_xrcd(3).
class RDMABUF_EXPORT XrcDomain {
  public:
    /// Opens a domain that only this process can use.
    /// @throws Error EOPNOTSUPP if the device has no XRC; ENOMEM if no memory is left; EBADF if @p
    ///         context was closed, released or moved from
    explicit XrcDomain(const Context& context);
    /// Opens the domain of the file @p fd, and creates the domain if no process has opened it yet.
    /// All processes that open the same file on the same device share the domain. With @p fd -1,
    /// only this process can use the domain. The caller still owns the descriptor, and may close it
    /// after the call.
    /// @throws the errors of the other constructor, and Error EBADF or EINVAL if @p fd is not
    ///         the descriptor of a file
    XrcDomain(const Context& context, int fd);
    /// Takes ownership of a domain that other code has opened on @p context.
    [[nodiscard]] static XrcDomain adopt(const Context& context, ibv_xrcd* domain);
    /// Returns an object that uses @p domain but does not own it. For a null pointer, the result is
    /// like an object that was closed.
    [[nodiscard]] static XrcDomain borrow(ibv_xrcd* domain);

    [[nodiscard]] ibv_xrcd* native() const noexcept { return handle_.get(); }
    /// Returns the context on which the domain was opened.
    /// @throws Error EBADF if the domain was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("XrcDomain::context", "XrcDomain");
    }
    /// Returns the ibv_xrcd and gives up ownership: the caller must close the ibv_xrcd. If it was
    /// borrowed, only its owner may close it.
    [[nodiscard]] ibv_xrcd* release() noexcept { return handle_.release(); }
    /// Closes the domain now. After an error, this object still owns the open domain.
    /// @throws Error EBUSY while copies of the domain, or objects created with it, exist
    void close() { handle_.close(); }

  private:
    using Handle = detail::shared_handle<ibv_xrcd, detail::CloseXrcd, Context>;
    explicit XrcDomain(Handle handle) noexcept : handle_(std::move(handle)) {}

    Handle handle_;
};

} // namespace rdmabuf
