// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <exception>
#include <new>

#include <rdmabuf/error.hpp>
#include <rdmabuf/result.hpp>

namespace rdmabuf::detail {
namespace {

void tell(Failure& failure, std::error_code code, const char* message) noexcept {
    failure.code = code;
    try {
        failure.message = message;
    } catch (const std::bad_alloc&) {
        failure.message.clear(); // The code has to do.
    }
}

} // namespace

bool call_and_catch(void (*thunk)(void*), void* argument, Failure& failure) noexcept {
    try {
        thunk(argument);
        return true;
    } catch (const std::system_error& error) { // Error is one.
        tell(failure, error.code(), error.what());
    } catch (const std::bad_alloc& error) {
        tell(failure, {ENOMEM, std::system_category()}, error.what());
    } catch (const std::exception& error) {
        tell(failure, {EIO, std::system_category()}, error.what());
    }
    return false;
}

} // namespace rdmabuf::detail
