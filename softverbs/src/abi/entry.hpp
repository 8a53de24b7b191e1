// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>

#include <memory>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>

#include "abi/real_library.hpp"
#include "fabric/uncancellable.hpp"
#include "objects/device.hpp"
#include "objects/device_file.hpp"
#include "objects/memory.hpp"
#include "objects/process.hpp"

/// Declares an exported function that replaces the libibverbs function of the same name. The
/// version script softverbs.map gives the function its symbol version in libibverbs.
#define SOFTVERBS_ENTRY extern "C" __attribute__((visibility("default")))

// verbs.h defines macros with these names. Remove the macros, because softverbs defines functions
// with the same names.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace softverbs {

/// Sets errno to @p error and returns the failure value of a verb: null, or @p error itself.
template <class Result>
[[nodiscard]] Result failure(int error) noexcept {
    errno = error;
    if constexpr (std::is_pointer_v<Result>) {
        return nullptr;
    } else {
        return static_cast<Result>(error);
    }
}

/// Calls the function @p name of the real libibverbs. Used for objects that do not belong to
/// softverbs. Fails with ENOSYS if the real library does not have this function.
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

/// Calls @p function with Process::lock held, and returns its result: 0 or an errno. Returns ENOMEM
/// if @p function throws std::bad_alloc.
template <class Function>
int locked(const Function& function) {
    try {
        const Guard guard;
        return function();
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

/// Returns @p result. If it is an errno, also sets errno, as libibverbs does after a failed system
/// call.
template <class Result>
[[nodiscard]] Result with_errno(Result result) noexcept {
    if constexpr (std::is_same_v<Result, int>) {
        if (result != 0) {
            errno = result;
        }
    }
    return result;
}

/// Calls @p function, which implements a verb, with Process::lock held and thread cancellation
/// disabled. If enter() returns an error, fails with this error and does not call @p function.
/// Fails with ENOMEM if @p function throws std::bad_alloc.
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

/// Like call(), for a verb that destroys an object. Does not return EIO if the device has failed,
/// because objects of a failed device can still be destroyed. Only an injected fault for this verb
/// prevents the call of @p function.
template <class Function>
[[nodiscard]] int destroy(std::string_view verb, const Function& function) {
    const fabric::NoCancellation not_cancelled;
    try {
        const Guard guard;
        const int planned = process().faults.enter(verb);
        return with_errno<int>(planned != 0 ? planned : function());
    } catch (const std::bad_alloc&) {
        return failure<int>(ENOMEM);
    }
}
/// Like destroy(), but calls @p function without Process::lock, because @p function locks it.
template <class Function>
[[nodiscard]] int destroy_unlocked(std::string_view verb, const Function& function) {
    const fabric::NoCancellation not_cancelled;
    try {
        const int planned = destroy(verb, [] { return 0; });
        return planned != 0 ? planned : with_errno<int>(function());
    } catch (const std::bad_alloc&) {
        return failure<int>(ENOMEM);
    }
}

/// Returns the pointer (such as ibv_qp*) with which the program refers to @p object; null if @p
/// object is null. Returns an errno as it is.
template <class Result, class Object>
[[nodiscard]] Result native_of(Object object) noexcept {
    if constexpr (std::is_convertible_v<Object, Result>) {
        return object;
    } else {
        return object == nullptr ? nullptr : object->native();
    }
}

/// Creates a context for the device file. On success, the context owns @p cmd_fd. On failure,
/// returns null and sets errno, and the caller still owns @p cmd_fd.
[[nodiscard]] Context* open_device(std::shared_ptr<DeviceFile> file, int cmd_fd);

/// Frees an imported protection domain, but not the original one. Does nothing for other ones.
void unimport_pd(Pd& pd);
/// Frees an imported memory region, but not the original one. Does nothing for other ones.
void unimport_mr(Mr& mr);
/// Implements ibv_dereg_mr() for a region that ibv_import_mr() has returned. Also makes the
/// original region unusable. Returns 0, or EOPNOTSUPP if another process has registered the
/// original region.
int dereg_imported_mr(Mr& mr);

} // namespace softverbs
