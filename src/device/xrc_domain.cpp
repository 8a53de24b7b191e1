// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <cerrno>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/xrc_domain.hpp>

namespace rdmabuf {

int detail::CloseXrcd::call(ibv_xrcd* domain) noexcept {
    return ibv_close_xrcd(domain);
}

namespace {

/// With this descriptor, ibv_open_xrcd(3) creates a private XRC domain without a file.
constexpr int no_file = -1;

ibv_xrcd* open(const Context& context, int fd) {
    constexpr const char* function = "ibv_open_xrcd";
    ibv_context* const native = detail::native_of(context, function, "Context");
    ibv_xrcd_init_attr attributes{};
    attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attributes.fd = fd;
    attributes.oflags = O_CREAT;
    errno = 0;
    return detail::check_pointer(
        ibv_open_xrcd(native, &attributes), function, [&](int error) -> std::string {
            const bool has_xrc =
                (context.attributes().native.orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
            if (!has_xrc) {
                return context.device_name() + " has no XRC";
            }
            return (error == EINVAL || error == EBADF) && fd != no_file
                       ? "descriptor " + std::to_string(fd) +
                             " is not open, or is not that of a file"
                       : std::string();
        });
}

} // namespace

XrcDomain::XrcDomain(const Context& context) : XrcDomain(context, no_file) {}

XrcDomain::XrcDomain(const Context& context, int fd)
    : XrcDomain(adopt(context, open(context, fd))) {}

XrcDomain XrcDomain::adopt(const Context& context, ibv_xrcd* domain) {
    using Owner = Handle::unique;
    return XrcDomain(Owner(domain, Owner::deleter_type::holding(context)));
}

XrcDomain XrcDomain::borrow(ibv_xrcd* domain) {
    return XrcDomain(domain != nullptr ? Handle::borrow(domain, Context::borrow(domain->context))
                                       : Handle());
}

} // namespace rdmabuf
