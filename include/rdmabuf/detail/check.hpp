// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <concepts>
#include <string>
#include <string_view>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// Throws an Error. If @p error is EIO and @p function is a verbs function other than a
/// registration, the hint also says that the device may have been reset. Inline functions call this
/// function instead of using `throw`, because programs compiled with -fno-exceptions cannot contain
/// a throw expression.
[[noreturn]] RDMABUF_EXPORT void raise(int error, const char* function, std::string_view hint,
                                       SourceLocation where = SourceLocation::current());

/// Throws Error EBADF for an object that was closed, released or moved from.
/// @param type  the name of the object's class
[[noreturn]] RDMABUF_EXPORT void raise_closed(const char* function, const char* type,
                                              SourceLocation where = SourceLocation::current());

/// Returns the verbs object of @p owner.
/// @param type  the name of the owner's class, for the error text
/// @throws Error EBADF if @p owner was closed, released or moved from
template <class Owner>
[[nodiscard]] auto* native_of(const Owner& owner, const char* function, const char* type,
                              SourceLocation where = SourceLocation::current()) {
    auto* const native = owner.native();
    if (native == nullptr) {
        raise_closed(function, type, where);
    }
    return native;
}

/// Returns the text of a hint, which explains an error to the user. A hint is a string, or a
/// function that returns a string for an errno value. The function is called only after a failure,
/// and after errno was read. If the function throws a std::exception, the text is empty, so that
/// the Error reports the original failure.
inline std::string hint_text(std::string_view hint, int /*error*/) {
    return std::string(hint);
}
template <std::invocable<int> Hint>
std::string hint_text(const Hint& hint, int error) {
    auto text = attempt([&]() -> std::string { return hint(error); });
    return text ? *std::move(text) : std::string();
}

/// Checks the result of a C function that returns null and sets errno on failure. Returns @p
/// pointer, so that the caller can construct an owner of the object in the same statement.
/// @throws Error with the value of errno; with EIO if errno is 0
template <class T, class Hint = std::string_view>
T* check_pointer(T* pointer, const char* function, const Hint& hint = {},
                 SourceLocation where = SourceLocation::current()) {
    if (pointer == nullptr) {
        // Some providers return null but do not set errno. EIO replaces an errno of 0, because an
        // Error with the text "Success" would be wrong.
        const int error = errno != 0 ? errno : EIO;
        raise(error, function, hint_text(hint, error), where);
    }
    return pointer;
}

/// Checks the result of a C function that returns 0 on success. A positive result is the errno
/// value; after a negative result, the variable errno contains the value.
/// @throws Error with the errno value; EIO if the result is negative and errno is 0
template <class Hint = std::string_view>
void check_zero(int result, const char* function, const Hint& hint = {},
                SourceLocation where = SourceLocation::current()) {
    if (result != 0) {
        const int error = result > 0 ? result : (errno != 0 ? errno : EIO);
        raise(error, function, hint_text(hint, error), where);
    }
}

} // namespace rdmabuf::detail
