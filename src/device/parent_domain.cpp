// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/parent_domain.hpp>

namespace rdmabuf {

int detail::DeallocTd::call(ibv_td* td) noexcept {
    return ibv_dealloc_td(td);
}

namespace {

constexpr const char* alloc_td = "ibv_alloc_td";
constexpr const char* alloc_parent_domain = "ibv_alloc_parent_domain";

/// Returns the error hint (cause and remedy) for a failed allocation of @p objects.
/// @param objects  the kind of verbs object, for example "thread domains"
std::string explain(const Context& context, const char* objects, int error) {
    return error == EOPNOTSUPP ? "the provider of " + context.device_name() + " has no " + objects
                               : context.device_name();
}

ibv_td* allocate(const Context& context) {
    ibv_context* const native = detail::native_of(context, alloc_td, "Context");
    ibv_td_init_attr attributes{};
    errno = 0;
    return detail::check_pointer(ibv_alloc_td(native, &attributes), alloc_td, [&](int error) {
        return explain(context, "thread domains", error);
    });
}

ibv_pd* allocate(const ProtectionDomain& pd, const ParentDomainOptions& options) {
    ibv_parent_domain_init_attr attributes{};
    attributes.pd = detail::native_of(pd, alloc_parent_domain, "ProtectionDomain");
    if (options.thread_domain != nullptr) {
        attributes.td =
            detail::native_of(*options.thread_domain, alloc_parent_domain, "ThreadDomain");
    }
    if ((options.alloc == nullptr) != (options.free == nullptr)) {
        throw Error(EINVAL, alloc_parent_domain, "only one of alloc and free is set");
    }
    if (options.alloc != nullptr) {
        attributes.alloc = options.alloc;
        attributes.free = options.free;
        attributes.pd_context = options.pd_context;
        attributes.comp_mask =
            IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    }
    errno = 0;
    return detail::check_pointer(
        ibv_alloc_parent_domain(attributes.pd->context, &attributes), alloc_parent_domain,
        [&](int error) { return explain(pd.context(), "parent domains", error); });
}

} // namespace

ThreadDomain::ThreadDomain(const Context& context)
    : handle_(Handle::unique(allocate(context), Handle::unique::deleter_type::holding(context))) {}

ParentDomain::ParentDomain(const ProtectionDomain& pd, const ParentDomainOptions& options)
    : ProtectionDomain([&] {
          using Objects = std::pair<ProtectionDomain, std::optional<ThreadDomain>>;
          auto objects = std::make_shared<const Objects>(
              pd, options.thread_domain != nullptr ? std::optional(*options.thread_domain)
                                                   : std::nullopt);
          static_cast<void>(detail::native_of(pd, alloc_parent_domain, "ProtectionDomain"));
          Handle::unique owner(
              nullptr, Handle::unique::deleter_type::holding(pd.context(), std::move(objects)));
          owner.reset(allocate(pd, options));
          return Handle(std::move(owner));
      }()) {}

} // namespace rdmabuf
