// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <limits>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/dmabuf_mr.hpp>

#include "checks.hpp"
#include "dmabuf_diagnosis.hpp"

namespace rdmabuf {
namespace {

constexpr const char* function = "ibv_reg_dmabuf_mr";

std::uint64_t choose_iova(const DmaBufRange& range, const DmaBufOptions& options) noexcept {
    return options.iova.value_or(range.address != 0 ? range.address : range.offset);
}

/// What the kernel answers with a bare EINVAL, in words.
void check_arguments(const DmaBufRange& range, const DmaBufOptions& options) {
    detail::check_access(options.access, full_access | Access::relaxed_ordering, function,
                         "a dma-buf");
    if (range.length == 0) {
        throw Error(EINVAL, function, "a length of 0: there is nothing to register");
    }
    if (range.length > std::numeric_limits<std::uint64_t>::max() - range.offset) {
        throw Error(EINVAL, function,
                    "offset " + std::to_string(range.offset) + " + length " +
                        std::to_string(range.length) + " overflows 64 bits");
    }
    // The kernel compares within a page of its own size: 4, 16 or 64 KiB.
    const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    const std::uint64_t iova = choose_iova(range, options);
    if (iova % page != range.offset % page) {
        throw Error(EINVAL, function,
                    "the iova lies " + std::to_string(iova % page) +
                        " bytes into its page and the offset " +
                        std::to_string(range.offset % page) +
                        " bytes into its; they must agree (pages here have " +
                        std::to_string(page) + " bytes)");
    }
}

ibv_mr* register_dmabuf(const ProtectionDomain& pd, const DmaBufRange& range,
                        const DmaBufOptions& options) {
    check_arguments(range, options);
    errno = 0;
    return detail::check_pointer(
        ibv_reg_dmabuf_mr(pd.native(), range.offset, range.length, choose_iova(range, options),
                          range.fd, static_cast<int>(options.access)),
        function, [&](int error) {
            return detail::diagnose_dmabuf(pd.context(), range,
                                           detail::inspect_descriptor(range.fd), error);
        });
}

} // namespace

DmaBufMR::DmaBufMR(const ProtectionDomain& pd, const DmaBufRange& range,
                   const DmaBufOptions& options)
    : Region(detail::RegionHandle(register_dmabuf(pd, range, options),
                                  detail::RegionHandle::deleter_type::holding(pd, nullptr)),
             choose_iova(range, options), range.length, options.access),
      offset_(range.offset),
      address_(range.address) {}

} // namespace rdmabuf
