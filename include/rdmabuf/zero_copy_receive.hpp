// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <linux/netlink.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/status.hpp>

/// Arguments of the two kernel interfaces that receive TCP data into a dma-buf without a copy:
/// io_uring zero-copy receive, and devmem TCP.
///
/// Both interfaces take a whole dma-buf, and the NIC writes anywhere in it. The functions return
/// EINVAL for a range that is not the whole dma-buf, because the rest of the dma-buf may be other
/// memory of the program. Export a whole allocation, and check that the dma-buf contains no other
/// allocation. Both interfaces only borrow the descriptor; the kernel holds the dma-buf while it is
/// in use.
///
/// The layouts and numbers are those of the kernel's headers, which Debian 12 does not have. The
/// contents of the arguments are tested; no test has passed them to a kernel with such a NIC.
namespace rdmabuf::adapters {

/// Checks that the range is a whole dma-buf, and that its length is a multiple of the page size.
/// @return EINVAL if one of these conditions is false, or the errno value of lseek(2): EBADF if the
///         descriptor is not open, ESPIPE if the file has no size
[[nodiscard]] inline Status check_whole_dmabuf(const DmaBufRange& range) noexcept {
    const off_t size = ::lseek(range.fd, 0, SEEK_END);
    if (size < 0) {
        return Status(errno);
    }
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const bool whole = range.offset == 0 && range.length != 0 && range.length % page == 0 &&
                       static_cast<std::uint64_t>(size) == range.length;
    return Status(whole ? 0 : EINVAL);
}

/// The flag IORING_ZCRX_AREA_DMABUF of io_uring_zcrx_area_reg.
inline constexpr std::uint32_t zcrx_area_dmabuf = 1;

/// Fills struct io_uring_zcrx_area_reg for IORING_REGISTER_ZCRX_IFQ (include/uapi/linux/io_uring.h
/// of Linux 6.16):
///
///     io_uring_zcrx_area_reg area;
///     if (fill_zcrx_area(exported, area)) {
///         registration.area_ptr = reinterpret_cast<std::uintptr_t>(&area);
///     }
///
/// The member addr is the offset in the dma-buf, which must be 0 (io_import_dmabuf in
/// io_uring/zcrx.c). All reserved members are set to 0.
/// @return the errors of check_whole_dmabuf(); after an error, @p out is unchanged
template <class ZcrxAreaReg>
requires requires(ZcrxAreaReg& out) {
    out.addr, out.len, out.rq_area_token, out.flags, out.dmabuf_fd;
}
[[nodiscard]] Status fill_zcrx_area(const DmaBufRange& range, ZcrxAreaReg& out) noexcept {
    const Status status = check_whole_dmabuf(range);
    if (status.ok()) {
        out = ZcrxAreaReg{};
        out.len = range.length;
        out.flags = zcrx_area_dmabuf;
        out.dmabuf_fd = static_cast<decltype(out.dmabuf_fd)>(range.fd);
    }
    return status;
}

/// Returns the address of data that io_uring received into the dma-buf range @p area.
/// @param offset  io_uring_zcrx_cqe::off; the upper 16 bits are the number of the area
[[nodiscard]] constexpr std::uintptr_t zcrx_address(const DmaBufRange& area,
                                                    std::uint64_t offset) noexcept {
    constexpr unsigned area_shift = 48; // IORING_ZCRX_AREA_SHIFT
    return area.address + (offset & ((std::uint64_t{1} << area_shift) - 1));
}

/// The name of the generic netlink family of devmem TCP (include/uapi/linux/netdev.h of Linux
/// 6.12).
inline constexpr const char* netdev_family = "netdev";
/// The number of the command NETDEV_CMD_BIND_RX of the netlink family "netdev".
inline constexpr std::uint8_t netdev_bind_rx = 13;

namespace detail {

/// The numbers of the netlink attributes NETDEV_A_DMABUF_* and NETDEV_A_QUEUE_*.
inline constexpr std::uint16_t dmabuf_ifindex = 1;
inline constexpr std::uint16_t dmabuf_queues = 2;
inline constexpr std::uint16_t dmabuf_fd = 3;
inline constexpr std::uint16_t queue_id = 1;
inline constexpr std::uint16_t queue_type = 3;

/// The size in bytes of a netlink attribute with a 32-bit value.
inline constexpr std::size_t attribute_size = sizeof(nlattr) + sizeof(std::uint32_t);

inline std::byte* write_attribute(std::byte* at, std::uint16_t type, std::uint32_t value) noexcept {
    const nlattr header{.nla_len = attribute_size, .nla_type = type};
    std::memcpy(at, &header, sizeof header);
    std::memcpy(at + sizeof header, &value, sizeof value);
    return at + attribute_size;
}

} // namespace detail

/// Returns the number of bytes that write_devmem_binding() writes for @p queues receive queues.
[[nodiscard]] constexpr std::size_t devmem_binding_size(std::size_t queues) noexcept {
    return 2 * detail::attribute_size + queues * (sizeof(nlattr) + 2 * detail::attribute_size);
}

/// Writes the attributes of NETDEV_CMD_BIND_RX, which follow the genlmsghdr of the request. They
/// bind the dma-buf to receive queues of a network interface. The reply contains the number of the
/// binding (NETDEV_A_DMABUF_ID). The binding ends when the netlink socket is closed.
/// @param interface  the number of the network interface (if_nametoindex(3))
/// @param queues     the numbers of its receive queues, at least one
/// @param out        receives the attributes: at least devmem_binding_size(queues.size()) bytes
/// @return the errors of check_whole_dmabuf(); EINVAL if @p queues is empty; EMSGSIZE if @p out is
///         too short
[[nodiscard]] inline Status write_devmem_binding(const DmaBufRange& range, std::uint32_t interface,
                                                 std::span<const std::uint32_t> queues,
                                                 std::span<std::byte> out) noexcept {
    if (queues.empty()) {
        return Status(EINVAL);
    }
    if (out.size() < devmem_binding_size(queues.size())) {
        return Status(EMSGSIZE);
    }
    if (const Status status = check_whole_dmabuf(range); !status.ok()) {
        return status;
    }
    std::byte* at = detail::write_attribute(out.data(), detail::dmabuf_ifindex, interface);
    at = detail::write_attribute(at, detail::dmabuf_fd, static_cast<std::uint32_t>(range.fd));
    for (const std::uint32_t queue : queues) {
        const nlattr nested{
            .nla_len = sizeof(nlattr) + 2 * detail::attribute_size,
            .nla_type = detail::dmabuf_queues | NLA_F_NESTED,
        };
        std::memcpy(at, &nested, sizeof nested);
        at = detail::write_attribute(at + sizeof nested, detail::queue_id, queue);
        at = detail::write_attribute(at, detail::queue_type, 0); // NETDEV_QUEUE_TYPE_RX
    }
    return {};
}

/// Returns the address of data that devmem TCP received into the dma-buf range @p bound.
/// @param offset  dmabuf_cmsg::frag_offset, which is counted from the beginning of the dma-buf
[[nodiscard]] constexpr std::uintptr_t devmem_address(const DmaBufRange& bound,
                                                      std::uint64_t offset) noexcept {
    return bound.address + offset;
}

} // namespace rdmabuf::adapters
