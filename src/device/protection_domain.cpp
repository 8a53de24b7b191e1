// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf {

int detail::DeallocPd::call(ibv_pd* pd) noexcept {
    return ibv_dealloc_pd(pd);
}

void detail::DeallocPd::unimport(ibv_pd* pd) noexcept {
    ibv_unimport_pd(pd);
}

namespace {

using Deleter = detail::HandleDeleter<detail::DeallocPd, Context, std::shared_ptr<const void>>;

ibv_pd* allocate_pd(const Context& context) {
    constexpr const char* function = "ibv_alloc_pd";
    ibv_context* const native = detail::native_of(context, function, "Context");
    errno = 0;
    return detail::check_pointer(ibv_alloc_pd(native), function);
}

} // namespace

ProtectionDomain::ProtectionDomain(const Context& context)
    : handle_(Handle::unique(allocate_pd(context), Deleter::holding(context, nullptr))) {}

ProtectionDomain ProtectionDomain::adopt(const Context& context, ibv_pd* pd) {
    return ProtectionDomain(Handle(Handle::unique(pd, Deleter::holding(context, nullptr))));
}

ProtectionDomain ProtectionDomain::import_handle(const Context& context, std::uint32_t handle) {
    constexpr const char* function = "ibv_import_pd";
    ibv_context* const native = detail::native_of(context, function, "Context");
    Deleter deleter = Deleter::holding(context, nullptr);
    deleter.set_imported();
    errno = 0;
    ibv_pd* const pd = detail::check_pointer(ibv_import_pd(native, handle), function, [&](int) {
        return "protection domain " + std::to_string(handle) + " of " + context.device_name();
    });
    return ProtectionDomain(Handle(Handle::unique(pd, std::move(deleter))));
}

ProtectionDomain ProtectionDomain::borrow(ibv_pd* pd) {
    return ProtectionDomain(
        pd != nullptr ? Handle::borrow(pd, Context::borrow(pd->context), nullptr) : Handle());
}

} // namespace rdmabuf
