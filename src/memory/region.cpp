// SPDX-License-Identifier: BSD-3-Clause
#include <limits>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/region.hpp>

#include "memory/checks.hpp"

namespace rdmabuf {

int detail::DeregMr::call(ibv_mr* mr) noexcept {
    return ibv_dereg_mr(mr);
}

ibv_sge Region::sge(std::size_t offset, std::uint32_t length) const {
    static_cast<void>(detail::native_of(*this, "Region::sge", "region"));
    detail::check_inside(offset, length, length_, "Region::sge", "the region");
    return {.addr = iova_ + offset, .length = length, .lkey = lkey()};
}

ibv_sge Region::sge() const {
    static_cast<void>(detail::native_of(*this, "Region::sge", "region"));
    if (length_ > std::numeric_limits<std::uint32_t>::max()) {
        throw Error(ERANGE, "Region::sge",
                    "the region has " + std::to_string(length_) +
                        " bytes and a scatter-gather entry takes up to 4294967295: give offset and "
                        "length");
    }
    return sge(0, static_cast<std::uint32_t>(length_));
}

} // namespace rdmabuf
