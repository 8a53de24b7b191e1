// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/random.h>

#include <cerrno>
#include <iterator>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/transport/handle.hpp>

namespace rdmabuf::transport::detail {

/// Returns a secret of 16 random bytes.
/// @throws Error with the errno value of getrandom(2)
inline Handle::Secret random_secret() {
    Handle::Secret secret{};
    const ssize_t size = ::getrandom(secret.data(), secret.size(), 0);
    rdmabuf::detail::check_zero(size == std::ssize(secret) ? 0 : errno, "getrandom");
    return secret;
}

} // namespace rdmabuf::transport::detail
