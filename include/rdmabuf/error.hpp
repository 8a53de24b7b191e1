// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A location in source code. This type replaces std::source_location, which clang 14 does not
/// have. SourceLocation is the same with all compilers, so a program built with clang 14 can use a
/// library built with another compiler.
struct SourceLocation {
    const char* file;
    unsigned line;
    const char* function;

    [[nodiscard]] static constexpr SourceLocation current(
        const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
        const char* function = __builtin_FUNCTION()) noexcept {
        return {.file = file, .line = line, .function = function};
    }
};

/// The exception of this library. The library throws an Error, for example, if a call of verbs,
/// librdmacm, a driver or the kernel failed, or if the library rejected the arguments before the
/// call. The lists `@throws Error` in this library name the errno values with a known cause. A
/// function that calls C functions can also throw the other errno values of these functions.
///
/// what() is `function: description (ERRNO NAME): hint`, for example "ibv_reg_mr: Cannot allocate
/// memory (ENOMEM): …". code() is in std::system_category(), so a program can compare
/// `error.code() == std::errc::invalid_argument`.
class RDMABUF_EXPORT Error : public std::system_error {
  public:
    /// Creates an exception for a failed call.
    /// @param error     a positive errno value
    /// @param function  the name of the function that failed or was not called because of invalid
    ///                  arguments: a C function, or a function of this library; a string literal
    /// @param hint      the values of the request, the cause and a remedy; may be empty
    /// @param where     the source location; by default that of the caller
    Error(int error, const char* function, std::string_view hint = {},
          SourceLocation where = SourceLocation::current());

    [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }
    /// Returns the errno value, which is positive.
    [[nodiscard]] int error() const noexcept { return code().value(); }
    /// Returns the name of the function that failed, or that the library did not call because the
    /// arguments were invalid: a C function, or a function of this library.
    [[nodiscard]] const char* function() const noexcept { return function_; }
    /// Returns the cause of the error and a remedy. The text is empty if the library has no
    /// information beyond the errno value.
    [[nodiscard]] const std::string& hint() const noexcept { return hint_; }
    /// Returns the source location that reported the error, either in the program or in this
    /// library.
    [[nodiscard]] const SourceLocation& where() const noexcept { return where_; }

  private:
    const char* function_;
    std::string hint_;
    std::string what_;
    SourceLocation where_;
};

/// The kernel's errno value ENOTSUPP (include/linux/errno.h), which `<cerrno>` does not define.
/// Some dma-buf exporters (nvidia.ko) return this value, and uverbs passes the value to user space
/// unchanged.
inline constexpr int kernel_enotsupp = 524;

/// Returns the description and the name of an errno value: "Invalid argument (EINVAL)" for 22. If
/// the C library cannot report the names, the number is used: "Invalid argument (errno 22)". Unlike
/// strerror(3), this function also describes kernel_enotsupp.
[[nodiscard]] RDMABUF_EXPORT std::string describe_errno(int error);

/// A function that the library calls if a destructor, or another function that cannot throw, fails
/// to release a resource.
/// @param function  the name of the C function that failed
/// @param error     the errno value of that function
using TeardownFailureHandler = void (*)(const char* function, int error) noexcept;

/// Sets the TeardownFailureHandler and returns the previous one. This function is thread-safe.
/// @param handler  nullptr restores the default handler, which writes one line to stderr
RDMABUF_EXPORT TeardownFailureHandler
set_teardown_failure_handler(TeardownFailureHandler handler) noexcept;

/// The result of a probe, which tests whether a feature can be used on this machine. If the feature
/// cannot be used, the result contains the reason and, if possible, a remedy.
struct Availability {
    bool available = false;
    /// The reason for the result, without a full stop at the end. The text can also be set if
    /// `available` is true, for example "/dev/udmabuf, up to 64 MiB per buffer".
    std::string reason;
    /// Describes how to make the feature available. Empty if the feature is available or no way is
    /// known.
    std::string remedy;

    [[nodiscard]] static Availability yes(std::string reason = {}) {
        return {.available = true, .reason = std::move(reason), .remedy = {}};
    }
    [[nodiscard]] static Availability no(std::string reason, std::string remedy = {}) {
        return {.available = false, .reason = std::move(reason), .remedy = std::move(remedy)};
    }

    explicit operator bool() const noexcept { return available; }
};

/// Returns "yes", "yes: reason", "no", "no: reason" or "no: reason; remedy".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Availability& availability);

/// The result of a function on the data path, which does not throw: success or an errno value. A
/// Status is one int, and costs no more than the int that the C function returns.
class [[nodiscard]] RDMABUF_EXPORT Status {
  public:
    constexpr Status() noexcept = default;
    /// Creates a Status from @p error, which is 0 for success or a positive errno value.
    explicit constexpr Status(int error) noexcept : error_(error) {}

    [[nodiscard]] constexpr bool ok() const noexcept { return error_ == 0; }
    explicit constexpr operator bool() const noexcept { return ok(); }

    /// Returns the errno value; 0 for success.
    [[nodiscard]] constexpr int error() const noexcept { return error_; }
    [[nodiscard]] std::error_code code() const noexcept { return {error_, std::system_category()}; }

    /// Throws an Error with the errno value and the function name @p function, unless the Status is
    /// success. If a verbs function other than a registration has returned EIO, the hint says that
    /// the device may have been reset.
    void throw_if_failed(const char* function) const;

    friend constexpr bool operator==(Status, Status) noexcept = default;

  private:
    int error_ = 0;
};

/// The Status of one C function, whose name throw_if_failed() puts into the Error.
class [[nodiscard]] CallStatus {
  public:
    /// @param function  the name of the C function; a string literal
    constexpr CallStatus(Status status, const char* function) noexcept
        : status_(status), function_(function) {}

    [[nodiscard]] constexpr bool ok() const noexcept { return status_.ok(); }
    explicit constexpr operator bool() const noexcept { return ok(); }
    [[nodiscard]] constexpr int error() const noexcept { return status_.error(); }
    [[nodiscard]] std::error_code code() const noexcept { return status_.code(); }
    void throw_if_failed() const { status_.throw_if_failed(function_); }

    /* implicit */ constexpr operator Status() const noexcept { return status_; }

  private:
    Status status_;
    const char* function_;
};

/// The contents of an Error as a value. A function that does not throw returns an ErrorInfo in its
/// Result.
class RDMABUF_EXPORT ErrorInfo {
  public:
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

    /// Returns the text of Error::hint(): "reason; remedy", or the reason alone if there is no
    /// remedy.
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
    /// Returns the text of ErrorInfo::message(); empty if ok().
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
/// Calls @p thunk with @p argument, and catches a std::exception that @p thunk throws. Another
/// exception ends the process.
/// @param error  receives the contents of the exception
/// @return true if @p thunk returned without an exception
RDMABUF_EXPORT bool call_and_catch(void (*thunk)(void*), void* argument, ErrorInfo& error) noexcept;
} // namespace detail

/// Calls @p make, and returns a std::exception that @p make throws as an error value. Another
/// exception ends the process. Intended for programs that are compiled without exceptions
/// (`-fno-exceptions`), which cannot catch. In such a program, @p make should contain only one
/// call: an object that @p make itself owns leaks when an exception passes through @p make.
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
