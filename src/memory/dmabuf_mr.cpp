// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/dmabuf_mr.hpp>

#include "memory/checks.hpp"
#include "memory/dmabuf_diagnosis.hpp"

namespace rdmabuf {
namespace {

constexpr const char* function = "ibv_reg_dmabuf_mr";

std::uint64_t choose_iova(const DmaBufRange& range, const DmaBufOptions& options) noexcept {
    return options.iova.value_or(range.address != 0 ? range.address : range.offset);
}

ibv_mr* register_dmabuf(const ProtectionDomain& pd, const DmaBufRange& range,
                        const DmaBufOptions& options) {
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    detail::check_dmabuf(range, choose_iova(range, options), options.access, function);
    errno = 0;
    return detail::check_pointer(
        ibv_reg_dmabuf_mr(native, range.offset, range.length, choose_iova(range, options), range.fd,
                          static_cast<int>(options.access)),
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
