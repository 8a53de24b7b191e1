// SPDX-License-Identifier: BSD-3-Clause
#include <string.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

#include "base/kernel_errno.hpp"

namespace rdmabuf {
namespace {

std::string message(const char* function, int error, std::string_view hint) {
    std::string text = std::string(function) + ": " + describe_errno(error);
    if (!hint.empty()) {
        text.append(": ").append(hint);
    }
    return text;
}

void print_teardown_failure(const char* function, int error) noexcept {
    // No allocation: a destructor may run because memory ran out.
    const char* const name = strerrorname_np(error);
    std::fprintf(stderr, "rdmabuf: %s failed while giving a resource back: errno %d (%s)\n",
                 function, error, name != nullptr ? name : "?");
}

std::atomic<TeardownFailureHandler> teardown_failure_handler{&print_teardown_failure};

} // namespace

// std::system_error would append the errno's meaning behind the text; ours stands before the hint.
// So the base is given only the code, and what() is overridden.
Error::Error(int error, const char* function, std::string_view hint, SourceLocation where)
    : std::system_error(error, std::system_category()),
      function_(function),
      hint_(hint),
      what_(message(function, error, hint)),
      where_(where) {}

std::string describe_errno(int error) {
    if (error == detail::kernel_enotsupp) {
        return "Operation not supported (ENOTSUPP, kernel-internal 524)";
    }
    std::string text = std::system_category().message(error);
    if (const char* const name = strerrorname_np(error); name != nullptr) {
        text.append(" (").append(name).append(")");
    } else {
        text.append(" (errno ").append(std::to_string(error)).append(")");
    }
    return text;
}

TeardownFailureHandler set_teardown_failure_handler(TeardownFailureHandler handler) noexcept {
    return teardown_failure_handler.exchange(handler != nullptr ? handler
                                                                : &print_teardown_failure);
}

void detail::report_teardown_failure(const char* function, int error) noexcept {
    teardown_failure_handler.load()(function, error);
}

void detail::raise_closed(const char* function, const char* type, SourceLocation where) {
    throw Error(EBADF, function,
                "the " + std::string(type) +
                    " was closed, released or moved from, so it has no verbs object: create a new "
                    "one",
                where);
}

} // namespace rdmabuf
