// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dlfcn.h>
#include <errno.h>

#include <atomic>
#include <type_traits>

/// Declares an exported function that replaces the libc function of the same name.
#define SOFTVERBS_FILE extern "C" __attribute__((visibility("default")))
/// Declares an exported function that is another name of @p function in the same file.
#define SOFTVERBS_ALIAS(function) \
    extern "C" __attribute__((visibility("default"), alias(#function)))

namespace softverbs {

/// The next definition of a libc function in the symbol search order after softverbs (RTLD_NEXT).
/// The constructor is constexpr, because another library may open files before the constructors of
/// softverbs run.
template <class Function>
class Next {
  public:
    /// @param otherwise  is called if no library defines @p name
    explicit constexpr Next(const char* name, Function* otherwise = nullptr) noexcept
        : name_(name), otherwise_(otherwise) {}

    template <class... Arguments>
    auto operator()(Arguments... arguments) {
        Function* const found = find();
        if (found == nullptr) {
            errno = ENOSYS;
            return failed<decltype(found(arguments...))>();
        }
        return found(arguments...);
    }

    /// Looks up the next definition with dlsym(3). Call find() in advance for functions that a
    /// signal handler may call, because dlsym(3) is not safe in a signal handler.
    Function* find() noexcept {
        Function* found = function_.load(std::memory_order_relaxed);
        if (found == nullptr) {
            found = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name_));
            found = found != nullptr ? found : otherwise_;
            function_.store(found, std::memory_order_relaxed);
        }
        return found;
    }

  private:
    template <class Result>
    static Result failed() noexcept {
        if constexpr (std::is_pointer_v<Result>) {
            return nullptr;
        } else {
            return Result{-1};
        }
    }

    const char* name_;
    Function* otherwise_;
    std::atomic<Function*> function_{nullptr};
};

} // namespace softverbs
