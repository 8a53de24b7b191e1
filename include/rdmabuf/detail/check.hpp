// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <concepts>
#include <string>
#include <string_view>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf::detail {

/// Throws an Error, also for programs that are compiled without exceptions and cannot say so.
[[noreturn]] RDMABUF_EXPORT void raise(int error, const char* function, std::string_view hint,
                                       SourceLocation where = SourceLocation::current());

/// Throws Error EBADF: an object was used that has no verbs object.
/// @param type  the name of its class
[[noreturn]] RDMABUF_EXPORT void raise_closed(const char* function, const char* type,
                                              SourceLocation where = SourceLocation::current());

/// Returns the verbs object of @p owner, an object of class @p type.
/// @throws Error EBADF when there is none: @p owner was closed, released or moved from
template <class Owner>
[[nodiscard]] auto* native_of(const Owner& owner, const char* function, const char* type,
                              SourceLocation where = SourceLocation::current()) {
    auto* const native = owner.native();
    if (native == nullptr) {
        raise_closed(function, type, where);
    }
    return native;
}

/// A hint is text, or a function from the errno to text: the latter for hints that take work, which
/// is done only on failure, and after errno has been read. Should that work fail in turn, there is
/// no hint: it must not take the place of the failure it was to explain.
inline std::string hint_text(std::string_view hint, int /*error*/) {
    return std::string(hint);
}
template <std::invocable<int> Hint>
std::string hint_text(const Hint& hint, int error) {
    auto text = attempt([&]() -> std::string { return hint(error); });
    return text ? *std::move(text) : std::string();
}

/// For calls that return null and set errno. Hands the pointer through, so that the caller can put
/// it into its owner on the line that made it.
template <class T, class Hint = std::string_view>
T* check_pointer(T* pointer, const char* function, const Hint& hint = {},
                 SourceLocation where = SourceLocation::current()) {
    if (pointer == nullptr) {
        // Some providers return null without an errno; "Success" would be a lie.
        const int error = errno != 0 ? errno : EIO;
        raise(error, function, hint_text(hint, error), where);
    }
    return pointer;
}

/// For calls that return 0 or an errno value; a negative value means that errno has it.
template <class Hint = std::string_view>
void check_zero(int result, const char* function, const Hint& hint = {},
                SourceLocation where = SourceLocation::current()) {
    if (result != 0) {
        const int error = result > 0 ? result : (errno != 0 ? errno : EIO);
        raise(error, function, hint_text(hint, error), where);
    }
}

} // namespace rdmabuf::detail
