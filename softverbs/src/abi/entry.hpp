// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>

#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "abi/real_library.hpp"
#include "fabric/no_cancellation.hpp"
#include "objects/device.hpp"
#include "objects/process.hpp"

/// Defines a function that replaces the one of libibverbs. softverbs.map gives it libibverbs's
/// symbol versions.
#define SOFTVERBS_ENTRY extern "C" __attribute__((visibility("default")))

// verbs.h defines these names as macros. softverbs defines the functions behind them.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace softverbs {

/// The result of a call that fails: null, or the errno. Sets errno.
template <class Result>
[[nodiscard]] Result failure(int error) noexcept {
    errno = error;
    if constexpr (std::is_pointer_v<Result>) {
        return nullptr;
    } else {
        return static_cast<Result>(error);
    }
}

/// Calls the function of the real libibverbs, for a handle that does not belong to softverbs. Fails
/// with ENOSYS when the library does not have the function.
template <auto Self, class... Arguments>
auto forward(const char* name, Arguments... arguments) {
    using Result = std::invoke_result_t<decltype(Self), Arguments...>;
    static const auto real = [name]() -> decltype(Self) {
        void* const found = real_symbol(name);
        return found == reinterpret_cast<void*>(Self) ? nullptr
                                                      : reinterpret_cast<decltype(Self)>(found);
    }();
    if constexpr (std::is_void_v<Result>) {
        if (real != nullptr) {
            real(arguments...);
        }
    } else {
        return real != nullptr ? real(arguments...) : failure<Result>(ENOSYS);
    }
}

/// Checks at the start of a verb whether it must fail: 0, the errno of a planned fault, or EIO if
/// the device has failed.
[[nodiscard]] inline int enter(std::string_view verb, const Context& context) {
    const int planned = process().faults.enter(verb);
    return planned == 0 && context.dead ? EIO : planned;
}

/// Returns the result of a verb. A verb that returns an errno sets errno to it as well, as
/// libibverbs does for every call that the kernel fails.
template <class Result>
[[nodiscard]] Result with_errno(Result result) noexcept {
    if constexpr (std::is_same_v<Result, int>) {
        if (result != 0) {
            errno = result;
        }
    }
    return result;
}

/// Calls @p function, which implements a verb, with Process::lock held. If enter() returns an
/// error, the verb fails with that errno instead, and @p function is not called. Returns ENOMEM if
/// @p function throws std::bad_alloc. Disables thread cancellation during the call.
template <class Function>
[[nodiscard]] auto call(std::string_view verb, const Context& context, const Function& function)
    -> decltype(function()) {
    using Result = decltype(function());
    const fabric::NoCancellation not_cancelled;
    try {
        const Guard guard;
        const int error = enter(verb, context);
        return error != 0 ? failure<Result>(error) : with_errno<Result>(function());
    } catch (const std::bad_alloc&) {
        return failure<Result>(ENOMEM);
    }
}

/// Like call(), for a verb that destroys an object. Only a fault that names this verb makes it
/// fail; a failed device does not.
template <class Function>
[[nodiscard]] int destroy(std::string_view verb, const Function& function) {
    const fabric::NoCancellation not_cancelled;
    const Guard guard;
    const int planned = process().faults.enter(verb);
    return with_errno<int>(planned != 0 ? planned : function());
}
/// Like destroy(), for a function that locks Process::lock itself.
template <class Function>
[[nodiscard]] int destroy_unlocked(std::string_view verb, const Function& function) {
    const fabric::NoCancellation not_cancelled;
    const int planned = destroy(verb, [] { return 0; });
    return planned != 0 ? planned : with_errno<int>(function());
}

/// The native handle of an object whose class has the verbs structure as a member; null for null.
template <class Native, class Object>
[[nodiscard]] Native* native_of(Object* object) noexcept {
    return object == nullptr ? nullptr : object->native();
}

} // namespace softverbs
