// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/region.hpp>

#include "base/wire_format.hpp"
#include "memory/checks.hpp"
#include "memory/dmabuf_diagnosis.hpp"

namespace rdmabuf {
namespace {

constexpr std::array<std::pair<Access, const char*>, 11> flag_names{{
    {Access::local_write, "local_write"},
    {Access::remote_write, "remote_write"},
    {Access::remote_read, "remote_read"},
    {Access::remote_atomic, "remote_atomic"},
    {Access::memory_window_bind, "memory_window_bind"},
    {Access::zero_based, "zero_based"},
    {Access::on_demand, "on_demand"},
    {Access::hugetlb, "hugetlb"},
    {Access::flush_global, "flush_global"},
    {Access::flush_persistent, "flush_persistent"},
    {Access::relaxed_ordering, "relaxed_ordering"},
}};

} // namespace

std::string to_string(Access access) {
    std::string text;
    const auto append = [&text](const char* name) {
        text.append(text.empty() ? "" : "|").append(name);
    };
    for (const auto& [flag, name] : flag_names) {
        if (has(access, flag)) {
            append(name);
            access = access & ~flag;
        }
    }
    if (const auto unnamed = static_cast<unsigned>(access); unnamed != 0) {
        std::array<char, 16> digits{};
        std::snprintf(digits.data(), digits.size(), "0x%x", unnamed);
        append(digits.data());
    }
    return text.empty() ? "local_read" : text;
}

namespace {

/// A registration with this length, a null address and Access::on_demand covers the whole address
/// space.
constexpr std::size_t whole_address_space = std::numeric_limits<std::size_t>::max();

std::string explain(int error, std::size_t length) {
    rlimit limit{};
    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        const std::string nic = "the NIC has no more memory regions or translations";
        return limit.rlim_cur == RLIM_INFINITY
                   ? nic
                   : "RLIMIT_MEMLOCK limits pinned memory to " + std::to_string(limit.rlim_cur) +
                         " bytes, and this registration pins " + std::to_string(length) +
                         " bytes: raise the limit (ulimit -l, limits.conf, LimitMEMLOCK=); with "
                         "CAP_IPC_LOCK, " +
                         nic;
    }
    if (error == EFAULT) {
        return "these pages cannot be pinned: the memory is not mapped, is mapped from a device "
               "(use its dma-buf), or is read only while the access writes";
    }
    return {};
}

std::uint64_t choose_iova(const void* address, const MemoryRegionOptions& options) {
    const bool zero_based = has(options.access, Access::zero_based);
    return options.iova.value_or(zero_based ? 0 : reinterpret_cast<std::uintptr_t>(address));
}

std::string explain_implicit(const Context& context) {
    constexpr auto implicit = std::uint64_t{IBV_ODP_SUPPORT_IMPLICIT};
    try {
        if ((context.attributes().odp_capabilities() & implicit) == 0) {
            return context.device_name() +
                   " has no implicit on-demand paging (IBV_ODP_SUPPORT_IMPLICIT): register the "
                   "ranges that are used";
        }
    } catch (const Error&) { // NOLINT(bugprone-empty-catch): it must not replace the original error
    }
    return {};
}

ibv_mr* register_host(const ProtectionDomain& pd, void* address, std::size_t length,
                      const MemoryRegionOptions& options) {
    constexpr const char* function = "ibv_reg_mr";
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    detail::check_host_region(address, length, choose_iova(address, options), options.access,
                              function);
    const auto access = static_cast<unsigned>(options.access);
    errno = 0;
    // ibv_reg_mr(3) takes no iova, so the function ibv_reg_mr_iova2() of libibverbs is called.
    // ibv_reg_mr_iova2() also removes optional access flags that the kernel does not support. In
    // rdma-core, ibv_reg_mr is a macro that may call the same function.
    return detail::check_pointer(
        ibv_reg_mr_iova2(native, address, length, choose_iova(address, options), access), function,
        [&](int error) {
            return address == nullptr && length == whole_address_space
                       ? explain_implicit(pd.context())
                       : explain(error, length);
        });
}

std::uint64_t choose_iova(const DmaBufRange& range, const DmaBufOptions& options) noexcept {
    return options.iova.value_or(range.address != 0 ? range.address : range.offset);
}

ibv_mr* register_dmabuf(const ProtectionDomain& pd, const DmaBufRange& range,
                        const DmaBufOptions& options) {
    constexpr const char* function = "ibv_reg_dmabuf_mr";
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    detail::check_dmabuf(range, choose_iova(range, options), options.access, function);
    errno = 0;
    return detail::check_pointer(
        ibv_reg_dmabuf_mr(native, range.offset, range.length, choose_iova(range, options), range.fd,
                          static_cast<int>(options.access)),
        function, [&](int error) {
            return detail::diagnose_dmabuf(
                pd.context(), range, detail::inspect_descriptor(range.fd), options.access, error);
        });
}

} // namespace

int detail::DeregMr::call(ibv_mr* mr) noexcept {
    return ibv_dereg_mr(mr);
}

void detail::DeregMr::unimport(ibv_mr* mr) noexcept {
    ibv_unimport_mr(mr);
}

ibv_sge Region::sge(std::size_t offset, std::uint32_t length) const {
    static_cast<void>(detail::native_of(*this, "Region::sge", "region"));
    detail::check_inside(offset, length, length_, "Region::sge", "the region");
    return {.addr = iova_ + offset, .length = length, .lkey = lkey()};
}

ibv_sge Region::sge() const {
    static_cast<void>(detail::native_of(*this, "Region::sge", "region"));
    if (length_ > std::numeric_limits<std::uint32_t>::max()) {
        throw Error(
            ERANGE, "Region::sge",
            "the region has " + std::to_string(length_) +
                " bytes, but a scatter-gather entry can have at most 4294967295: pass an offset "
                "and a length");
    }
    return sge(0, static_cast<std::uint32_t>(length_));
}

void Region::prefetch(std::size_t offset, std::size_t length,
                      const PrefetchOptions& options) const {
    constexpr const char* function = "ibv_advise_mr";
    // A scatter-gather entry can have at most 4 GiB - 1 bytes. The limit here is 1 GiB, so that
    // each entry begins at a page boundary if the range begins at a page boundary.
    constexpr std::size_t max_piece = std::size_t{1} << 30U;
    ibv_mr* const mr = detail::native_of(*this, function, "region");
    detail::check_inside(offset, length, length_, function, "the region");
    std::vector<ibv_sge> pieces;
    for (std::size_t done = 0; done < length; done += max_piece) {
        pieces.push_back({.addr = iova_ + offset + done,
                          .length = static_cast<std::uint32_t>(std::min(length - done, max_piece)),
                          .lkey = mr->lkey});
    }
    if (pieces.empty()) {
        return;
    }
    detail::check_zero(
        ibv_advise_mr(mr->pd, static_cast<ibv_advise_mr_advice>(options.pages),
                      options.wait ? IBV_ADVISE_MR_FLAG_FLUSH : 0, pieces.data(),
                      static_cast<std::uint32_t>(pieces.size())),
        function, [&](int error) -> std::string {
            switch (error) {
                case EOPNOTSUPP:
                    return "the device has no on-demand paging, or does not support this advice";
                case ENOENT:
                    return "the pages of this region are pinned: register it with "
                           "Access::on_demand";
                case EPERM:
                    return "the region has no Access::local_write";
                default:
                    return std::to_string(length) + " bytes at offset " + std::to_string(offset);
            }
        });
}

MemoryRegion::MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                           const MemoryRegionOptions& options)
    : MemoryRegion(detail::RegionHandle(register_host(pd, address, length, options),
                                        detail::RegionHandle::deleter_type::holding(pd, nullptr)),
                   address, length, options) {}

MemoryRegion::MemoryRegion(detail::RegionHandle handle, void* address, std::size_t length,
                           const MemoryRegionOptions& options) noexcept
    : Region(std::move(handle), choose_iova(address, options), length, options.access),
      address_(address) {}

MemoryRegion MemoryRegion::adopt(const ProtectionDomain& pd, ibv_mr* mr,
                                 const MemoryRegionOptions& options) {
    return {detail::RegionHandle(mr, detail::RegionHandle::deleter_type::holding(pd, nullptr)),
            mr != nullptr ? mr->addr : nullptr, mr != nullptr ? mr->length : 0, options};
}

MemoryRegion MemoryRegion::borrow(ibv_mr* mr, const MemoryRegionOptions& options) {
    if (mr == nullptr) {
        return {detail::RegionHandle(), nullptr, 0, options};
    }
    return {detail::RegionHandle(mr, detail::RegionHandle::deleter_type::borrowing(
                                         ProtectionDomain::borrow(mr->pd), nullptr)),
            mr->addr, mr->length, options};
}

MemoryRegion MemoryRegion::implicit_on_demand(const ProtectionDomain& pd, Access access) {
    return {pd, nullptr, whole_address_space, {.access = access | Access::on_demand}};
}

DmaBufMR::DmaBufMR(const ProtectionDomain& pd, const DmaBufRange& range,
                   const DmaBufOptions& options)
    : Region(detail::RegionHandle(register_dmabuf(pd, range, options),
                                  detail::RegionHandle::deleter_type::holding(pd, nullptr)),
             choose_iova(range, options), range.length, options.access),
      offset_(range.offset),
      address_(range.address) {}

namespace {
constexpr detail::WireHeader region_header{{'R', 'D', 'R', 'G'}, 1};
} // namespace

RemoteRegion RemoteRegion::slice(std::uint64_t offset, std::uint64_t count) const {
    detail::check_inside(offset, count, length, "RemoteRegion::slice", "the remote region");
    return {.address = address + offset, .length = count, .rkey = rkey};
}

std::array<std::byte, RemoteRegion::wire_size> RemoteRegion::encode() const noexcept {
    std::array<std::byte, wire_size> bytes{};
    detail::WireWriter writer(bytes, region_header);
    writer.put(std::uint16_t{0}); // reserved
    writer.put(rkey);
    writer.put(address);
    writer.put(length);
    return bytes;
}

Result<RemoteRegion> RemoteRegion::decode(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() != wire_size) {
        return ErrorInfo{EMSGSIZE, "decode",
                         bytes.size() < wire_size ? "a remote region has 28 bytes: truncated"
                                                  : "a remote region has 28 bytes: more follow"};
    }
    detail::WireReader reader(bytes);
    if (const auto problem = reader.check(region_header); problem.error() != 0) {
        return problem;
    }
    if (reader.get<std::uint16_t>() != 0) {
        return ErrorInfo{EPROTO, "decode", "reserved bytes are set"};
    }
    RemoteRegion region;
    region.rkey = reader.get<std::uint32_t>();
    region.address = reader.get<std::uint64_t>();
    region.length = reader.get<std::uint64_t>();
    if (region.length > std::numeric_limits<std::uint64_t>::max() - region.address) {
        return ErrorInfo{EPROTO, "decode", "address + length overflows 64 bits"};
    }
    return region;
}

} // namespace rdmabuf
