// SPDX-License-Identifier: BSD-3-Clause
#include "common/refusal.hpp"

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

void Refusal::raise() const {
    throw Error(error, function, explain(why));
}

std::string explain(const Availability& why) {
    return why.remedy.empty() ? why.reason : why.reason + "; " + why.remedy;
}

} // namespace rdmabuf::detail
