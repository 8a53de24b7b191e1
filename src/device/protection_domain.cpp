// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf {

int detail::DeallocPd::call(ibv_pd* pd) noexcept {
    return ibv_dealloc_pd(pd);
}

namespace {

using Deleter = detail::HandleDeleter<detail::DeallocPd, Context, std::shared_ptr<const void>>;

ibv_pd* allocate(const Context& context) {
    constexpr const char* function = "ibv_alloc_pd";
    ibv_context* const native = detail::native_of(context, function, "Context");
    errno = 0;
    return detail::check_pointer(ibv_alloc_pd(native), function);
}

} // namespace

ProtectionDomain::ProtectionDomain(const Context& context)
    : handle_(Handle::unique(allocate(context), Deleter::holding(context, nullptr))) {}

ProtectionDomain ProtectionDomain::adopt(const Context& context, ibv_pd* pd) {
    return ProtectionDomain(Handle(Handle::unique(pd, Deleter::holding(context, nullptr))));
}

ProtectionDomain ProtectionDomain::borrow(ibv_pd* pd) {
    return ProtectionDomain(Handle::borrow(pd, Context::borrow(pd->context), nullptr));
}

} // namespace rdmabuf
