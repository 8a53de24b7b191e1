// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A location in source code. This type replaces std::source_location, which clang 14 does not
/// have. It is the same with all compilers, so a program built with clang 14 can use a library
/// built with another compiler.
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

/// The exception of this library. The library throws an Error if a call of verbs, librdmacm or the
/// kernel failed, or if the library rejected the arguments before the call.
///
/// what() is `function: description (ERRNO NAME): hint`, for example "ibv_reg_mr: Cannot allocate
/// memory (ENOMEM): …". code() is in std::system_category(), so a program can compare
/// `error.code() == std::errc::invalid_argument`.
class RDMABUF_EXPORT Error : public std::system_error {
  public:
    /// Creates an exception for a failed call.
    /// @param error     a positive errno value
    /// @param function  the name of the C function that failed or was not called because of invalid
    ///                  arguments; a string literal
    /// @param hint      the values of the request, the cause and a remedy; may be empty
    /// @param where     the source location; by default that of the caller
    Error(int error, const char* function, std::string_view hint = {},
          SourceLocation where = SourceLocation::current());

    [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }
    /// Returns the errno value, which is positive.
    [[nodiscard]] int error() const noexcept { return code().value(); }
    /// Returns the name of the C function that failed or that was not called because of invalid
    /// arguments.
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

/// Returns the description and the name of an errno value: "Invalid argument (EINVAL)" for 22.
/// Unlike strerror(3), this function also describes kernel_enotsupp.
[[nodiscard]] RDMABUF_EXPORT std::string describe_errno(int error);

/// A function that the library calls if a destructor cannot release a resource, because destructors
/// do not throw.
/// @param function  the name of the C function that failed
/// @param error     the errno value of that function
using TeardownFailureHandler = void (*)(const char* function, int error) noexcept;

/// Sets the handler for failures in destructors and returns the previous handler. This function is
/// thread-safe.
/// @param handler  nullptr restores the default handler, which writes one line to stderr
RDMABUF_EXPORT TeardownFailureHandler
set_teardown_failure_handler(TeardownFailureHandler handler) noexcept;

} // namespace rdmabuf
