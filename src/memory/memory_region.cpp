// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>

#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/memory_region.hpp>

#include "memory/checks.hpp"

namespace rdmabuf {
namespace {

constexpr const char* function = "ibv_reg_mr";

std::string explain(int error, std::size_t length) {
    rlimit limit{};
    if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY) {
        return "pinned memory is charged to RLIMIT_MEMLOCK, which is " +
               std::to_string(limit.rlim_cur) + " bytes here, and " + std::to_string(length) +
               " were asked for: raise it (ulimit -l, limits.conf, LimitMEMLOCK=)";
    }
    if (error == EFAULT) {
        return "these pages cannot be pinned: the memory is not mapped, is mapped from a device "
               "(use "
               "DmaBufMR), or is read only while the access writes";
    }
    return {};
}

std::uint64_t choose_iova(const void* address, const MemoryRegionOptions& options) {
    const bool zero_based = has(options.access, Access::zero_based);
    return options.iova.value_or(zero_based ? 0 : reinterpret_cast<std::uintptr_t>(address));
}

ibv_mr* register_memory(const ProtectionDomain& pd, void* address, std::size_t length,
                        const MemoryRegionOptions& options) {
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    detail::check_host_region(address, length, choose_iova(address, options), options.access,
                              function);
    const auto access = static_cast<unsigned>(options.access);
    errno = 0;
    // The function behind the macro of that name: it takes an iova, and drops optional flags that
    // the kernel does not know.
    return detail::check_pointer(
        ibv_reg_mr_iova2(native, address, length, choose_iova(address, options), access), function,
        [length](int error) { return explain(error, length); });
}

} // namespace

MemoryRegion::MemoryRegion(const ProtectionDomain& pd, void* address, std::size_t length,
                           const MemoryRegionOptions& options)
    : Region(detail::RegionHandle(register_memory(pd, address, length, options),
                                  detail::RegionHandle::deleter_type::holding(pd, nullptr)),
             choose_iova(address, options), length, options.access),
      address_(address) {}

} // namespace rdmabuf
