// SPDX-License-Identifier: BSD-3-Clause
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/shared_objects.hpp>

#include "base/file_descriptor.hpp"
#include "base/wire_format.hpp"
#include "connection/tcp_socket.hpp"

namespace rdmabuf {
namespace {

detail::RegionHandle import_region(const ProtectionDomain& pd, const SharedRegion& region) {
    constexpr const char* function = "ibv_import_mr";
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    auto deleter = detail::RegionHandle::deleter_type::holding(pd, nullptr);
    deleter.set_imported();
    errno = 0;
    detail::RegionHandle handle(
        detail::check_pointer(ibv_import_mr(native, region.handle), function,
                              [&](int) {
                                  return "region " + std::to_string(region.handle) + " of " +
                                         pd.context().device_name();
                              }),
        std::move(deleter));
    if (handle->length != region.length) {
        throw Error(EPROTO, function,
                    "region " + std::to_string(region.handle) + " has " +
                        std::to_string(handle->length) + " bytes, not " +
                        std::to_string(region.length) + ": the handle identifies another region");
    }
    return handle;
}

} // namespace

SharedRegion SharedRegion::of(const Region& region) {
    return {.handle = detail::native_of(region, "SharedRegion::of", "region")->handle,
            .access = region.access(),
            .iova = region.iova(),
            .length = region.length()};
}

ImportedMR::ImportedMR(const ProtectionDomain& pd, const SharedRegion& region)
    : Region(import_region(pd, region), region.iova, region.length, region.access) {}

using detail::Deadline;

namespace {

constexpr detail::WireHeader header{{'R', 'D', 'S', 'O'}, 1};
constexpr std::size_t header_size = 16;
constexpr std::size_t region_size = 24;
constexpr std::size_t memory_size = 12;
/// Maximum number of memory regions in a message. The maximum number of device memories is the
/// same.
constexpr std::size_t max_objects = 1024;

/// A buffer for one control message (cmsg) with one file descriptor.
struct ControlBuffer {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

void check_socket(int socket, const char* function) {
    int domain = 0;
    int type = 0;
    socklen_t size = sizeof domain;
    detail::check_zero(::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size), "getsockopt");
    size = sizeof type;
    detail::check_zero(::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size), "getsockopt");
    if (domain != AF_UNIX || type != SOCK_STREAM) {
        throw Error(EINVAL, function, "a descriptor needs a UNIX domain stream socket");
    }
}

std::vector<std::byte> encode(const SharedObjects& objects) {
    std::vector<std::byte> bytes(header_size + objects.regions.size() * region_size +
                                 objects.memories.size() * memory_size);
    detail::WireWriter writer(bytes, header);
    writer.put(std::uint16_t{0}); // reserved
    writer.put(objects.pd);
    writer.put(static_cast<std::uint16_t>(objects.regions.size()));
    writer.put(static_cast<std::uint16_t>(objects.memories.size()));
    for (const SharedRegion& region : objects.regions) {
        writer.put(region.handle);
        writer.put(static_cast<std::uint32_t>(region.access));
        writer.put(region.iova);
        writer.put(region.length);
    }
    for (const SharedDeviceMemory& memory : objects.memories) {
        writer.put(memory.handle);
        writer.put(memory.size);
    }
    return bytes;
}

/// Sends the file descriptor @p fd together with at least the first byte of @p bytes.
/// @return the number of bytes that were sent
std::size_t send_with_descriptor(int socket, std::span<const std::byte> bytes, int fd,
                                 const Deadline& deadline) {
    ControlBuffer control;
    // The cast is safe: sendmsg() only reads the data, but iovec::iov_base is not const.
    iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    cmsghdr* const descriptor = CMSG_FIRSTHDR(&message);
    descriptor->cmsg_level = SOL_SOCKET;
    descriptor->cmsg_type = SCM_RIGHTS;
    descriptor->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(descriptor), &fd, sizeof fd);
    while (true) {
        const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            return static_cast<std::size_t>(sent);
        }
        detail::check_zero(errno == EAGAIN || errno == EINTR ? 0 : errno, "sendmsg");
        if (!detail::wait_writable(socket, deadline.left())) {
            throw Error(ETIMEDOUT, "sendmsg",
                        "the peer did not receive within " + deadline.describe());
        }
    }
}

/// Returns the file descriptor that @p message contains.
/// @throws Error EPROTO if the message does not contain exactly one file descriptor; EMFILE if this
///         process has too many open files. All received file descriptors are then closed.
UniqueFd take_descriptor(msghdr& message) {
    UniqueFd taken;
    bool is_one = true;
    for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
         each = CMSG_NXTHDR(&message, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
            is_one = is_one && !taken;
            taken.reset(fd);
        }
    }
    if (taken && is_one && (message.msg_flags & MSG_CTRUNC) == 0) {
        return taken;
    }
    // If this process has too many open files, the kernel discards the received descriptor and sets
    // MSG_CTRUNC.
    throw Error(taken || (message.msg_flags & MSG_CTRUNC) == 0 ? EPROTO : EMFILE, "recvmsg",
                "a message with shared objects must contain exactly one descriptor");
}

struct Received {
    UniqueFd descriptor;
    std::size_t size;
};
/// Receives the first bytes of a message and the file descriptor that the peer sent with them.
Received receive_with_descriptor(int socket, std::span<std::byte> buffer,
                                 const Deadline& deadline) {
    while (true) {
        ControlBuffer control;
        iovec data{buffer.data(), buffer.size()};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.data();
        message.msg_controllen = control.bytes.size();
        const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (size > 0) {
            return {take_descriptor(message), static_cast<std::size_t>(size)};
        }
        if (size == 0) {
            throw Error(ECONNRESET, "recvmsg", "the peer closed the connection");
        }
        detail::check_zero(errno == EAGAIN || errno == EINTR ? 0 : errno, "recvmsg");
        if (!detail::wait_readable(socket, deadline.left())) {
            throw Error(ETIMEDOUT, "recvmsg", "nothing arrived within " + deadline.describe());
        }
    }
}

struct Counts {
    std::size_t regions;
    std::size_t memories;
};
Counts decode_header(std::span<const std::byte> bytes, SharedObjects& objects) {
    detail::WireReader reader(bytes);
    if (const auto problem = reader.check(header); problem.error() != 0) {
        throw Error(problem.error(), "receive_objects", problem.hint());
    }
    const bool reserved_is_set = reader.get<std::uint16_t>() != 0;
    objects.pd = reader.get<std::uint32_t>();
    const Counts counts{reader.get<std::uint16_t>(), reader.get<std::uint16_t>()};
    if (reserved_is_set || counts.regions > max_objects || counts.memories > max_objects) {
        throw Error(EPROTO, "receive_objects", "the header of the message is not valid");
    }
    return counts;
}

void decode_objects(std::span<const std::byte> bytes, Counts counts, SharedObjects& objects) {
    detail::WireReader reader(bytes);
    for (std::size_t i = 0; i < counts.regions; ++i) {
        SharedRegion region;
        region.handle = reader.get<std::uint32_t>();
        region.access = static_cast<Access>(reader.get<std::uint32_t>());
        region.iova = reader.get<std::uint64_t>();
        region.length = reader.get<std::uint64_t>();
        if (region.length > std::numeric_limits<std::uint64_t>::max() - region.iova) {
            throw Error(EPROTO, "receive_objects", "iova + length overflows 64 bits");
        }
        objects.regions.push_back(region);
    }
    for (std::size_t i = 0; i < counts.memories; ++i) {
        SharedDeviceMemory memory;
        memory.handle = reader.get<std::uint32_t>();
        memory.size = reader.get<std::uint64_t>();
        objects.memories.push_back(memory);
    }
}

} // namespace

SharedDeviceMemory SharedDeviceMemory::of(const DeviceMemory& memory) {
    constexpr const char* function = "SharedDeviceMemory::of";
    const ibv_dm* const native = detail::native_of(memory, function, "DeviceMemory");
    if ((native->comp_mask & IBV_DM_MASK_HANDLE) == 0) {
        throw Error(EOPNOTSUPP, function,
                    "the provider gives no handle for device memory: only that of mlx5 does");
    }
    return {.handle = native->handle, .size = memory.size()};
}

void send_objects(int socket, const Context& context, const SharedObjects& objects,
                  std::chrono::milliseconds timeout) {
    constexpr const char* function = "send_objects";
    const ibv_context* const native = detail::native_of(context, function, "Context");
    check_socket(socket, function);
    if (objects.regions.size() > max_objects || objects.memories.size() > max_objects) {
        throw Error(E2BIG, function,
                    "a message has up to " + std::to_string(max_objects) +
                        " regions and as many device memories");
    }
    const Deadline deadline(timeout);
    const std::vector<std::byte> bytes = encode(objects);
    const std::size_t sent = send_with_descriptor(socket, bytes, native->cmd_fd, deadline);
    detail::send_all(socket, std::span(bytes).subspan(sent), deadline, "shared objects");
}

ReceivedObjects receive_objects(int socket, std::chrono::milliseconds timeout) {
    check_socket(socket, "receive_objects");
    const Deadline deadline(timeout);
    detail::Receiver receiver(socket, deadline, "shared objects");
    std::array<std::byte, header_size> first{};
    Received begin = receive_with_descriptor(socket, first, deadline);
    receiver.all(std::span(first).subspan(begin.size));
    ReceivedObjects received{std::move(begin.descriptor), {}};
    const Counts counts = decode_header(first, received.objects);
    std::vector<std::byte> rest(counts.regions * region_size + counts.memories * memory_size);
    receiver.all(rest);
    decode_objects(rest, counts, received.objects);
    return received;
}

} // namespace rdmabuf
