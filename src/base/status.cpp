// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/status.hpp>

namespace rdmabuf {

void Status::throw_if_failed(const char* function) const {
    detail::check_zero(error_, function);
}

} // namespace rdmabuf
