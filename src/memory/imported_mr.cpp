// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/imported_mr.hpp>

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

} // namespace rdmabuf
