// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

// The object has one owner: a copy would destroy it under the original.
rdmabuf::OBJECT other_owner(rdmabuf::OBJECT& object) {
#ifdef MUST_COMPILE
    return std::move(object);
#else
    return object;
#endif
}
