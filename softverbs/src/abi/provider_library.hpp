// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dlfcn.h>
#include <errno.h>

#include <initializer_list>
#include <optional>
#include <type_traits>

#include "abi/verbs.hpp"

namespace softverbs {

/// The two names of a provider library such as libmlx5. Programs load it under the first name. The
/// front library (softverbs/front) has this name, and loads the real provider library under the
/// second name.
struct ProviderLibrary {
    const char* name;
    const char* behind_front;
    /// Whether a softverbs device imitates the devices of this provider.
    bool Rules::*imitated;
};

/// Calls the function @p function of the real provider library. Used for objects that do not belong
/// to softverbs. Searches with dlsym(3) and RTLD_NEXT first. As this does not find a library that
/// libibverbs has loaded as a provider, searches the loaded library itself next. If the library is
/// not loaded or does not have the function, sets errno to EOPNOTSUPP, and returns null, false or
/// EOPNOTSUPP.
template <class Result, class... Parameters, class... Arguments>
Result forward_to_provider(const ProviderLibrary& provider, Result (*self)(Parameters...),
                           const char* function, Arguments... arguments) {
    const auto usable = [self](void* found) {
        return found != nullptr && found != reinterpret_cast<void*>(self);
    };
    void* found = ::dlsym(RTLD_NEXT, function);
    for (const char* const name : {provider.behind_front, provider.name}) {
        if (usable(found)) {
            break;
        }
        if (void* const library = ::dlopen(name, RTLD_LAZY | RTLD_NOLOAD); library != nullptr) {
            found = ::dlsym(library, function);
            ::dlclose(library); // the library stays loaded, as it was before
        }
    }
    if (!usable(found)) {
        errno = EOPNOTSUPP;
        if constexpr (std::is_same_v<Result, int>) {
            return EOPNOTSUPP;
        } else {
            return {};
        }
    }
    return reinterpret_cast<Result (*)(Parameters...)>(found)(arguments...);
}

/// Implements the exported function @p Self of a provider library for each object except those of
/// softverbs devices that imitate the provider; for these, returns no value. Calls the real library
/// for an object that does not belong to softverbs, and fails with EOPNOTSUPP for other softverbs
/// devices, as the library does for a device of another driver.
template <auto Self, class Native, class... Arguments>
[[nodiscard]] auto answer_of_provider(const ProviderLibrary& provider, const char* function,
                                      Native* native, Arguments... arguments) {
    using Result = std::invoke_result_t<decltype(Self), Native*, Arguments...>;
    const Context* const context = ours(native_context_of(native));
    return context == nullptr ? std::optional<Result>(forward_to_provider(provider, Self, function,
                                                                          native, arguments...))
           : context->device->rules.*provider.imitated
               ? std::nullopt
               : std::optional<Result>(failure<Result>(EOPNOTSUPP));
}

} // namespace softverbs
