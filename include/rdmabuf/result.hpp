// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Why something could not be done, for programs that do without exceptions.
struct Failure {
    /// An errno value in std::system_category(); ENOMEM for memory that could not be had.
    std::error_code code;
    /// What Error::what() says: the function, the errno's meaning, and what to do about it. Empty
    /// when there was no memory even for that.
    std::string message;
};

/// A value, or why there is none.
template <class T>
class [[nodiscard]] Result {
  public:
    /* implicit */ Result(T value) noexcept : value_(std::move(value)) {}
    /* implicit */ Result(Failure failure) noexcept : failure_(std::move(failure)) {}

    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }

    /// Only when ok().
    [[nodiscard]] T& operator*() & noexcept { return *value_; }
    [[nodiscard]] const T& operator*() const& noexcept { return *value_; }
    [[nodiscard]] T&& operator*() && noexcept { return *std::move(value_); }
    [[nodiscard]] T* operator->() noexcept { return &*value_; }
    [[nodiscard]] const T* operator->() const noexcept { return &*value_; }

    /// No error when ok().
    [[nodiscard]] std::error_code code() const noexcept { return failure_.code; }
    /// Empty when ok().
    [[nodiscard]] const std::string& message() const noexcept { return failure_.message; }
    [[nodiscard]] const Failure& failure() const noexcept { return failure_; }

  private:
    std::optional<T> value_;
    Failure failure_;
};

namespace detail {
/// Calls @p thunk, and tells what it throws. @return whether it threw nothing
RDMABUF_EXPORT bool call_and_catch(void (*thunk)(void*), void* argument, Failure& failure) noexcept;
} // namespace detail

/// Does something that may throw, and turns what it throws into a value: for programs that are
/// compiled without exceptions (`-fno-exceptions`), which cannot catch. They should let @p make do
/// one call only: what the function itself holds when an exception passes through it is lost there.
///
///     Result<Context> context = attempt([] { return Context::open("mlx5_0"); });
///
/// @return what @p make returns, std::monostate for nothing
template <class Make>
[[nodiscard]] auto attempt(Make&& make) noexcept {
    using Made = std::invoke_result_t<Make&>;
    using Value = std::conditional_t<std::is_void_v<Made>, std::monostate, Made>;
    struct Call {
        std::remove_reference_t<Make>& make;
        std::optional<Value> value = std::nullopt;
    } call{make};

    Failure failure;
    const auto thunk = [](void* argument) {
        auto& self = *static_cast<Call*>(argument);
        if constexpr (std::is_void_v<Made>) {
            self.make();
            self.value.emplace();
        } else {
            self.value.emplace(self.make());
        }
    };
    return detail::call_and_catch(thunk, &call, failure) ? Result<Value>(*std::move(call.value))
                                                         : Result<Value>(std::move(failure));
}

} // namespace rdmabuf
