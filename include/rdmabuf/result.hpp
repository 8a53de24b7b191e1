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

/// The contents of an Error as a value. A function that does not throw returns an ErrorInfo in its
/// Result.
class RDMABUF_EXPORT ErrorInfo {
  public:
    /// Creates an object without an error.
    ErrorInfo() noexcept = default;
    /// Creates an object with an error.
    /// @param function  the name of the function that failed, or that was not called because a
    ///                  check failed; a string literal, empty if no name is available
    /// @param reason    the cause of the error
    /// @param remedy    a change that would avoid the error; may be empty
    ErrorInfo(std::error_code code, const char* function, std::string_view reason,
              std::string_view remedy = {}) noexcept;
    /// Creates an object with the error @p error, a positive errno value.
    ErrorInfo(int error, const char* function, std::string_view reason,
              std::string_view remedy = {}) noexcept
        : ErrorInfo(std::error_code(error, std::system_category()), function, reason, remedy) {}

    /// Returns the errno value; 0 if there is no error. If a function caught std::bad_alloc, the
    /// value is ENOMEM.
    [[nodiscard]] int error() const noexcept { return code_.value(); }
    [[nodiscard]] const std::error_code& code() const noexcept { return code_; }
    [[nodiscard]] const char* function() const noexcept { return function_; }
    /// Returns the cause of the error. The text is empty if memory for the text could not be
    /// allocated.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
    [[nodiscard]] const std::string& remedy() const noexcept { return remedy_; }

    /// Returns the text of Error::hint(): "reason; remedy".
    [[nodiscard]] std::string hint() const;
    /// Returns the text of Error::what(). If function() is an empty string, returns the text of
    /// Error::hint() instead. The returned text is empty if memory for the text could not be
    /// allocated.
    [[nodiscard]] std::string message() const noexcept;
    /// Returns the error as an Availability: not available, with the reason and the remedy.
    [[nodiscard]] Availability availability() const { return Availability::no(reason_, remedy_); }
    /// Throws an Error with the contents of this object.
    [[noreturn]] void raise(SourceLocation where = SourceLocation::current()) const;

  private:
    std::error_code code_;
    const char* function_ = "";
    std::string reason_;
    std::string remedy_;
};

/// The result of a function that can fail: the value that the function returned, or the error.
template <class T>
class [[nodiscard]] Result {
  public:
    /* implicit */ Result(T value) noexcept : value_(std::move(value)) {}
    /* implicit */ Result(ErrorInfo error) noexcept : error_(std::move(error)) {}

    [[nodiscard]] bool ok() const noexcept { return value_.has_value(); }
    explicit operator bool() const noexcept { return ok(); }

    /// Returns the value. ok() must be true.
    [[nodiscard]] T& operator*() & noexcept { return *value_; }
    [[nodiscard]] const T& operator*() const& noexcept { return *value_; }
    [[nodiscard]] T&& operator*() && noexcept { return *std::move(value_); }
    [[nodiscard]] T* operator->() noexcept { return &*value_; }
    [[nodiscard]] const T* operator->() const noexcept { return &*value_; }

    /// Returns the value.
    /// @throws Error with the contents of error_info(), if there is no value
    [[nodiscard]] const T& value(SourceLocation where = SourceLocation::current()) const& {
        throw_if_failed(where);
        return *value_;
    }
    [[nodiscard]] T value(SourceLocation where = SourceLocation::current()) && {
        throw_if_failed(where);
        return *std::move(value_);
    }

    /// Returns the errno value; 0 if ok().
    [[nodiscard]] int error() const noexcept { return error_.error(); }
    /// Returns the error code, whose value is 0 if ok().
    [[nodiscard]] std::error_code code() const noexcept { return error_.code(); }
    /// Returns the cause of the error, without the function and the errno value; empty if ok().
    [[nodiscard]] const std::string& reason() const noexcept { return error_.reason(); }
    /// Returns the text of Error::what(); empty if ok().
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
/// Calls @p thunk with @p argument, and catches an exception that @p thunk throws.
/// @param error  receives the contents of the exception
/// @return true if @p thunk returned without an exception
RDMABUF_EXPORT bool call_and_catch(void (*thunk)(void*), void* argument, ErrorInfo& error) noexcept;
} // namespace detail

/// Calls @p make, which may throw, and returns an exception as an error value. For programs that
/// are compiled without exceptions (`-fno-exceptions`), which cannot catch. @p make should contain
/// only one call: an object that @p make itself owns leaks when an exception passes through it.
///
///     Result<Context> context = attempt([] { return Context::open("mlx5_0"); });
///
/// @return the value that @p make returns; std::monostate if @p make returns void
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
