// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf {

/// The contents of an Error as a value: for functions that return a Result instead of throwing.
class RDMABUF_EXPORT ErrorInfo {
  public:
    /// No error.
    ErrorInfo() noexcept = default;
    /// @param function  the C function that failed, or that would have; a string literal, empty if
    ///                  the function is not known
    /// @param reason    why it failed
    /// @param remedy    what to do about it; may be empty
    ErrorInfo(std::error_code code, const char* function, std::string_view reason,
              std::string_view remedy = {}) noexcept;
    /// @param error  a positive errno value
    ErrorInfo(int error, const char* function, std::string_view reason,
              std::string_view remedy = {}) noexcept
        : ErrorInfo(std::error_code(error, std::system_category()), function, reason, remedy) {}

    /// The errno value; 0 if there is no error. ENOMEM if memory ran out.
    [[nodiscard]] int error() const noexcept { return code_.value(); }
    [[nodiscard]] const std::error_code& code() const noexcept { return code_; }
    [[nodiscard]] const char* function() const noexcept { return function_; }
    /// Empty if there was no memory for the text.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }

    /// The text that Error::hint() has: "reason; remedy".
    [[nodiscard]] std::string hint() const;
    /// The text that Error::what() has, or only the hint if the function is not known. Empty if
    /// there is no memory for the text.
    [[nodiscard]] std::string message() const noexcept;
    /// The same answer as probing gives it: not available, with the reason and the remedy.
    [[nodiscard]] Availability availability() const { return Availability::no(reason_, remedy_); }
    /// Throws the Error.
    [[noreturn]] void raise(SourceLocation where = SourceLocation::current()) const;

  private:
    std::error_code code_;
    const char* function_ = "";
    std::string reason_;
    std::string remedy_;
};

/// A value, or the error because of which there is none.
template <class T>
class [[nodiscard]] Result {
  public:
    /* implicit */ Result(T value) noexcept : value_(std::move(value)) {}
    /* implicit */ Result(ErrorInfo error) noexcept : error_(std::move(error)) {}

    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }

    /// Only when ok().
    [[nodiscard]] T& operator*() & noexcept { return *value_; }
    [[nodiscard]] const T& operator*() const& noexcept { return *value_; }
    [[nodiscard]] T&& operator*() && noexcept { return *std::move(value_); }
    [[nodiscard]] T* operator->() noexcept { return &*value_; }
    [[nodiscard]] const T* operator->() const noexcept { return &*value_; }

    /// The value. @throws Error with the contents of error_info() if there is none
    [[nodiscard]] const T& value(SourceLocation where = SourceLocation::current()) const& {
        throw_if_failed(where);
        return *value_;
    }
    [[nodiscard]] T value(SourceLocation where = SourceLocation::current()) && {
        throw_if_failed(where);
        return *std::move(value_);
    }

    /// An errno value; 0 when ok().
    [[nodiscard]] int error() const noexcept { return error_.error(); }
    /// No error when ok().
    [[nodiscard]] std::error_code code() const noexcept { return error_.code(); }
    /// Why there is no value, without the function and the errno; empty when ok().
    [[nodiscard]] const std::string& reason() const noexcept { return error_.reason(); }
    /// The text that Error::what() has; empty when ok().
    [[nodiscard]] std::string message() const noexcept { return error_.message(); }
    [[nodiscard]] const ErrorInfo& error_info() const noexcept { return error_; }

  private:
    void throw_if_failed(SourceLocation where) const {
        if (!ok()) {
            error_.raise(where);
        }
    }

    std::optional<T> value_;
    ErrorInfo error_;
};

namespace detail {
/// Calls @p thunk and catches what it throws.
/// @param error  receives the contents of the exception
/// @return whether @p thunk returned
RDMABUF_EXPORT bool call_and_catch(void (*thunk)(void*), void* argument, ErrorInfo& error) noexcept;
} // namespace detail

/// Calls a function that may throw, and returns the exception as a value: for programs that are
/// compiled without exceptions (`-fno-exceptions`), which cannot catch. @p make should make only
/// one call: an object that @p make itself holds leaks when an exception passes through it.
///
///     Result<Context> context = attempt([] { return Context::open("mlx5_0"); });
///
/// @return the value that @p make returns, std::monostate for a function without one
template <class Make>
[[nodiscard]] auto attempt(Make&& make) noexcept {
    using Made = std::invoke_result_t<Make&>;
    using Value = std::conditional_t<std::is_void_v<Made>, std::monostate, Made>;
    struct Call {
        std::remove_reference_t<Make>& make;
        std::optional<Value> value = std::nullopt;
    } call{make};

    ErrorInfo error;
    const auto thunk = [](void* argument) {
        auto& self = *static_cast<Call*>(argument);
        if constexpr (std::is_void_v<Made>) {
            self.make();
            self.value.emplace();
        } else {
            self.value.emplace(self.make());
        }
    };
    return detail::call_and_catch(thunk, &call, error) ? Result<Value>(*std::move(call.value))
                                                       : Result<Value>(std::move(error));
}

} // namespace rdmabuf
