// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/imported_mr.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/unique_fd.hpp>

/// Sharing a protection domain, its memory regions and device memory with another process on this
/// machine, over a UNIX domain socket:
///
///     // process A                                         // process B
///     SharedObjects objects{pd.native()->handle};          ReceivedObjects received =
///     objects.regions.push_back(                               receive_objects(socket, 5s);
///         SharedRegion::of(region));                       auto context =
///         Context::import_descriptor(
///     send_objects(socket, pd.context(),                       std::move(received.device));
///                  objects, 5s);                           auto pd =
///                  ProtectionDomain::import_handle(
///                                                              context, received.objects.pd);
///                                                          ImportedMR region(
///                                                              pd, received.objects.regions[0]);
///
/// The process that created an object destroys it; the other one only ends its import. Process B
/// creates its own completion queues and queue pairs, and can register memory of its own in the
/// protection domain. ibv_dealloc_pd(3) in process A fails with EBUSY while objects of process B
/// use the protection domain. When process A ends, its objects live on until process B closes its
/// context, because both have the same device file open. Process A trusts process B: who has the
/// descriptor can use and destroy all objects of the device file.
///
/// Only libmlx5 can import, and softverbs within one process.
namespace rdmabuf {

/// Device memory as another process needs it to import the memory.
struct SharedDeviceMemory {
    /// ibv_dm::handle, which is unique in its device file.
    std::uint32_t handle = 0;
    /// In bytes.
    std::uint64_t size = 0;

    /// @throws Error EBADF when @p memory was closed, released or moved from; EOPNOTSUPP when its
    ///         provider gives no handle
    [[nodiscard]] RDMABUF_EXPORT static SharedDeviceMemory of(const DeviceMemory& memory);

    friend bool operator==(const SharedDeviceMemory&, const SharedDeviceMemory&) noexcept = default;
};

/// The objects of one device file that one message shares.
struct SharedObjects {
    /// ibv_pd::handle of the protection domain of the regions.
    std::uint32_t pd = 0;
    /// At most 1024.
    std::vector<SharedRegion> regions = {};
    /// At most 1024.
    std::vector<SharedDeviceMemory> memories = {};

    friend bool operator==(const SharedObjects&, const SharedObjects&) = default;
};

/// The objects that a process has received.
struct ReceivedObjects {
    /// The device file, close-on-exec: for Context::import_descriptor().
    UniqueFd device;
    SharedObjects objects;
};

/// Sends a duplicate of the descriptor of @p context (SCM_RIGHTS) and the handles of its objects.
/// @param socket   a connected UNIX domain stream socket, blocking or not; unix(7). The caller owns
///                 it.
/// @param objects  of @p context. They must live until the peer has imported them.
/// @param timeout  wait_forever waits
/// @throws Error EINVAL for another kind of socket, E2BIG for too many objects, ETIMEDOUT,
///         ECONNRESET or EPIPE when the peer has closed, EBADF when @p context was closed
RDMABUF_EXPORT void send_objects(int socket, const Context& context, const SharedObjects& objects,
                                 std::chrono::milliseconds timeout);

/// Receives what send_objects() has sent. A message that is not valid leaves no descriptor open.
/// @throws Error EPROTO for bytes that are no such message or come without exactly one descriptor,
///         EPROTONOSUPPORT for another version, EMFILE at the limit of descriptors, ETIMEDOUT,
///         ECONNRESET when the peer has closed
[[nodiscard]] RDMABUF_EXPORT ReceivedObjects receive_objects(int socket,
                                                             std::chrono::milliseconds timeout);

} // namespace rdmabuf
