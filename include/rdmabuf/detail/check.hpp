// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <string_view>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// For calls that return null and set errno. Hands the pointer through, so that the caller can put
/// it into its owner on the line that made it.
template <class T>
T* check_pointer(T* pointer, const char* function, std::string_view hint = {},
                 SourceLocation where = SourceLocation::current()) {
    if (pointer == nullptr) {
        // Some providers return null without an errno; "Success" would be a lie.
        throw Error(errno != 0 ? errno : EIO, function, hint, where);
    }
    return pointer;
}

/// For calls that return 0 or an errno value.
inline void check_zero(int error, const char* function, std::string_view hint = {},
                       SourceLocation where = SourceLocation::current()) {
    if (error != 0) {
        throw Error(error > 0 ? error : (errno != 0 ? errno : EIO), function, hint, where);
    }
}

} // namespace rdmabuf::detail
