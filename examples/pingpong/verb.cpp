// SPDX-License-Identifier: BSD-3-Clause
#include "verb.hpp"

namespace pingpong {

using rdmabuf::Access;

const char* to_string(Verb verb) noexcept {
    return examples::name_of<Verb>(verb, verbs);
}

const char* to_string(Role role) noexcept {
    return role == Role::initiator ? "initiator" : "responder";
}

Access access_for(Verb verb) noexcept {
    switch (verb) {
        case Verb::send:
            return Access::local_write;
        case Verb::write:
        case Verb::write_imm:
            return Access::local_write | Access::remote_write;
        case Verb::read:
            return Access::local_write | Access::remote_read;
        case Verb::compare_swap:
        case Verb::fetch_add:
            return Access::local_write | Access::remote_atomic;
    }
    return Access::local_write;
}

const char* latency_meaning(Verb verb) noexcept {
    return is_exchange(verb) ? "half a round trip" : "a whole operation";
}

} // namespace pingpong
