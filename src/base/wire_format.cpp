// SPDX-License-Identifier: BSD-3-Clause
#include "base/wire_format.hpp"

#include <cerrno>

namespace rdmabuf::detail {

WireReader::HeaderProblem WireReader::check(WireHeader expected) noexcept {
    for (const char letter : expected.kind) {
        if (get<std::uint8_t>() != static_cast<std::uint8_t>(letter)) {
            return {EPROTO, "these bytes are something else: the kind does not match"};
        }
    }
    if (get<std::uint16_t>() != expected.version) {
        return {EPROTONOSUPPORT, "written by another version: use the same rdmabuf on both sides"};
    }
    return {0, ""};
}

} // namespace rdmabuf::detail
