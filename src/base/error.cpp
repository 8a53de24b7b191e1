// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf {
namespace {

/// Returns "reason; remedy", or the reason alone if there is no remedy.
std::string join(std::string reason, const std::string& remedy) {
    if (!remedy.empty()) {
        reason.append("; ").append(remedy);
    }
    return reason;
}

/// Returns @p hint, followed by the probable cause if a verbs function failed with EIO.
/// Registration is an exception: there, EIO can also come from the exporter of the memory.
std::string with_device_hint(int error, std::string_view function, std::string_view hint) {
    if (error != EIO || !function.starts_with("ibv_") || function.starts_with("ibv_reg_")) {
        return std::string(hint);
    }
    std::string text(hint);
    text.append(text.empty() ? "" : "; ");
    text +=
        "the device may have been reset or removed: read its asynchronous events, "
        "IBV_EVENT_DEVICE_FATAL reports it";
    return text;
}

std::string message(const char* function, int error, std::string_view hint) {
    std::string text = std::string(function) + ": " + describe_errno(error);
    if (!hint.empty()) {
        text.append(": ").append(hint);
    }
    return text;
}

} // namespace

// std::system_error appends the meaning of the errno value to its text, but rdmabuf::Error puts
// this meaning before the hint. The base class therefore gets only the error code, and what() is
// overridden.
Error::Error(int error, const char* function, std::string_view hint, SourceLocation where)
    : std::system_error(error, std::system_category()),
      function_(function),
      hint_(hint),
      what_(message(function, error, hint)),
      where_(where) {}

std::string describe_errno(int error) {
    if (error == kernel_enotsupp) {
        return "Operation not supported (ENOTSUPP, kernel-internal 524)";
    }
    std::string text = std::system_category().message(error);
    if (const char* const name = detail::errno_name(error); name != nullptr) {
        text.append(" (").append(name).append(")");
    } else {
        text.append(" (errno ").append(std::to_string(error)).append(")");
    }
    return text;
}

void detail::raise(int error, const char* function, std::string_view hint, SourceLocation where) {
    throw Error(error, function, with_device_hint(error, function, hint), where);
}

void detail::raise_closed(const char* function, const char* type, SourceLocation where) {
    throw Error(EBADF, function,
                "the " + std::string(type) +
                    " was closed, released or moved from, so it has no verbs object: create a new "
                    "one",
                where);
}

void Status::throw_if_failed(const char* function) const {
    detail::check_zero(error_, function);
}

ErrorInfo::ErrorInfo(std::error_code code, const char* function, std::string_view reason,
                     std::string_view remedy) noexcept
    : code_(code), function_(function) {
    try {
        reason_ = reason;
        remedy_ = remedy;
    } catch (const std::bad_alloc&) {
        reason_.clear(); // Without memory for both texts, neither text is stored.
    }
}

std::string ErrorInfo::hint() const {
    return join(reason_, remedy_);
}

std::string ErrorInfo::message() const noexcept {
    try {
        return *function_ == '\0' ? hint() : rdmabuf::message(function_, error(), hint());
    } catch (const std::bad_alloc&) {
        return {};
    }
}

void ErrorInfo::raise(SourceLocation where) const {
    throw Error(error(), *function_ == '\0' ? "Result::value" : function_, hint(), where);
}

bool detail::call_and_catch(void (*thunk)(void*), void* argument, ErrorInfo& error) noexcept {
    try {
        thunk(argument);
        return true;
    } catch (const Error& thrown) {
        error = ErrorInfo(thrown.code(), thrown.function(), thrown.hint());
    } catch (const std::system_error& thrown) {
        error = ErrorInfo(thrown.code(), "", thrown.what());
    } catch (const std::bad_alloc&) {
        error = ErrorInfo(ENOMEM, "operator new", "the process has no host memory left");
    } catch (const std::exception& thrown) {
        error = ErrorInfo(EIO, "", thrown.what());
    }
    return false;
}

std::string to_string(const Availability& availability) {
    std::string text = availability.available ? "yes" : "no";
    if (!availability.reason.empty()) {
        text.append(": ").append(availability.reason);
    }
    return join(std::move(text), availability.remedy);
}

} // namespace rdmabuf
