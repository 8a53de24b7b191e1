// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <system_error>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// A place in a program. Not std::source_location, which clang 14 does not have: a library built by
/// one compiler must fit a program built by the other.
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

/// The one exception of this library: a call into verbs, librdmacm or the kernel failed, or was
/// refused here because it could only have failed.
///
/// what() reads `function: meaning (errno NAME): hint`. code() is in std::system_category(), so
/// `error.code() == std::errc::invalid_argument` works as usual.
class RDMABUF_EXPORT Error : public std::system_error {
  public:
    /// @param error     a positive errno value
    /// @param function  the C function that failed, or that would have; a string literal
    /// @param hint      what was asked for, why it cannot work, and what to do; may be empty
    Error(int error, const char* function, std::string_view hint = {},
          SourceLocation where = SourceLocation::current());

    [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }
    /// The errno value.
    [[nodiscard]] int error() const noexcept { return code().value(); }
    /// The name of the C function that failed.
    [[nodiscard]] const char* function() const noexcept { return function_; }
    /// Why, and what to do about it; empty where nothing is known beyond the errno.
    [[nodiscard]] const std::string& hint() const noexcept { return hint_; }
    /// Where in the program (or in this library) the failure was noticed.
    [[nodiscard]] const SourceLocation& where() const noexcept { return where_; }

  private:
    const char* function_;
    std::string hint_;
    std::string what_;
    SourceLocation where_;
};

/// ENOTSUPP of the kernel's include/linux/errno.h, which <cerrno> lacks. It is meant for the kernel
/// alone, but the dma-buf exporter of nvidia.ko and others return it, and uverbs passes it on.
inline constexpr int kernel_enotsupp = 524;

/// "Invalid argument (EINVAL)" for 22. Also knows kernel_enotsupp, which strerror does not know.
[[nodiscard]] RDMABUF_EXPORT std::string describe_errno(int error);

/// Called when a destructor could not give a resource back: destructors do not throw, and a failed
/// teardown must not pass unseen. @param function is the C function, @param error its errno.
using TeardownFailureHandler = void (*)(const char* function, int error) noexcept;

/// Replaces the handler (thread safe) and returns the one before. nullptr restores the default,
/// which writes one line to stderr.
RDMABUF_EXPORT TeardownFailureHandler
set_teardown_failure_handler(TeardownFailureHandler handler) noexcept;

} // namespace rdmabuf
