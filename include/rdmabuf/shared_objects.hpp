// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// The description of a memory region, with which another process can import the region. The
/// description contains the iova and the access flags, because ibv_import_mr(3) does not return
/// them.
struct SharedRegion {
    /// The value of ibv_mr::handle, which identifies the region within an open device file.
    std::uint32_t handle = 0;
    Access access = Access::local_read;
    /// The iova of the first byte of the region.
    std::uint64_t iova = 0;
    /// The length of the region in bytes.
    std::uint64_t length = 0;

    /// Returns the description of @p region.
    /// @throws Error EBADF if @p region was closed, released or moved from
    [[nodiscard]] RDMABUF_EXPORT static SharedRegion of(const Region& region);

    friend bool operator==(const SharedRegion&, const SharedRegion&) noexcept = default;
};

/// A memory region that another process has registered. Queue pairs of this process that belong to
/// the same protection domain can use the keys of the region. The import does not map the memory
/// into this process, so the CPU cannot access it.
///
/// The other process deregisters the region. Destroying or closing this object only ends the
/// import: the region stays registered. After the other process has deregistered the region,
/// requests that use its keys fail. ibv_import_mr(3).
class RDMABUF_EXPORT ImportedMR : public Region {
  public:
    /// Imports the memory region that @p region describes.
    /// @param pd      the protection domain of the region, imported with
    ///                ProtectionDomain::import_handle()
    /// @param region  the description that SharedRegion::of() returned in the other process
    /// @throws Error
    ///   - EOPNOTSUPP: the provider cannot import memory regions
    ///   - ENOENT: the device file has no region with SharedRegion::handle
    ///   - EPROTO: the imported region has another length than @p region
    ///   - EBADF: @p pd was closed, released or moved from
    ImportedMR(const ProtectionDomain& pd, const SharedRegion& region);
};

} // namespace rdmabuf

/// Shares a protection domain, its memory regions and device memory with another process on the
/// same machine, over a UNIX domain socket. Process A, which created the objects:
///
///     SharedObjects objects{.pd = pd.native()->handle};
///     objects.regions.push_back(SharedRegion::of(region));
///     send_objects(socket, pd.context(), objects, 5s);
///
/// Process B:
///
///     ReceivedObjects received = receive_objects(socket, 5s);
///     const auto context = Context::import_descriptor(std::move(received.device));
///     const auto pd = ProtectionDomain::import_handle(context, received.objects.pd);
///     const ImportedMR region(pd, received.objects.regions[0]);
///
/// The process that created an object destroys it; the other process only ends the import. Process
/// B creates its own completion queues and queue pairs, and can register its own memory in the
/// protection domain. While objects of process B use the protection domain, ibv_dealloc_pd(3) in
/// process A fails with EBUSY. When process A ends, its objects exist until process B closes its
/// context, because both processes have the same device file open. Process A must trust process B:
/// a process with the descriptor can use and destroy all objects of the device file.
///
/// Only libmlx5 and softverbs can import objects of another process. With softverbs, the memory of
/// a shared region must be device memory or a memfd; a region of other memory fails with
/// EOPNOTSUPP.
namespace rdmabuf {

/// The data that another process needs to import device memory.
struct SharedDeviceMemory {
    /// The value of ibv_dm::handle, which identifies the device memory within an open device file.
    std::uint32_t handle = 0;
    /// The size of the device memory in bytes.
    std::uint64_t size = 0;

    /// Returns the handle and size of @p memory.
    /// @throws Error EBADF if @p memory was closed, released or moved from; EOPNOTSUPP if the
    ///         provider of the device has no handles for device memory
    [[nodiscard]] RDMABUF_EXPORT static SharedDeviceMemory of(const DeviceMemory& memory);

    friend bool operator==(const SharedDeviceMemory&, const SharedDeviceMemory&) noexcept = default;
};

/// The objects that send_objects() shares with another process. All of these objects belong to one
/// open device file.
struct SharedObjects {
    /// The value of ibv_pd::handle for the protection domain that contains the regions.
    std::uint32_t pd = 0;
    /// The memory regions to share, at most 1024.
    std::vector<SharedRegion> regions = {};
    /// The device memories to share, at most 1024.
    std::vector<SharedDeviceMemory> memories = {};

    friend bool operator==(const SharedObjects&, const SharedObjects&) = default;
};

/// The objects that receive_objects() has received.
struct ReceivedObjects {
    /// A close-on-exec descriptor of the device file, for Context::import_descriptor().
    UniqueFd device;
    SharedObjects objects;
};

/// Sends the handles of @p objects and a duplicate of the descriptor of @p context (SCM_RIGHTS).
/// @param socket   a connected UNIX domain stream socket, blocking or non-blocking (unix(7)); not
///                 owned
/// @param objects  the objects to share, which must belong to @p context. They must not be
///                 destroyed before the peer has imported them.
/// @param timeout  the maximum time to wait; wait_forever for no limit
/// @throws Error EINVAL for another type of socket; E2BIG for too many objects; ETIMEDOUT if the
///         peer does not receive the message in time; ECONNRESET or EPIPE if the peer has closed
///         the socket; EBADF if @p context was closed, released or moved from
RDMABUF_EXPORT void send_objects(int socket, const Context& context, const SharedObjects& objects,
                                 std::chrono::milliseconds timeout);

/// Receives the objects that send_objects() has sent. After an invalid message, no received
/// descriptor stays open.
/// @param socket   as for send_objects()
/// @param timeout  the maximum time to wait; wait_forever for no limit
/// @throws Error EINVAL for another type of socket; EPROTO for bytes that are not a valid message,
///         or a message without exactly one descriptor; EPROTONOSUPPORT for another version; EMFILE
///         at the process's limit of descriptors; ETIMEDOUT if no message arrives in time;
///         ECONNRESET if the peer has closed the socket
[[nodiscard]] RDMABUF_EXPORT ReceivedObjects receive_objects(int socket,
                                                             std::chrono::milliseconds timeout);

} // namespace rdmabuf
