// SPDX-License-Identifier: BSD-3-Clause
#include <utility>

#include <rdmabuf/region.hpp>

// Two owners of one registration would deregister it twice.
rdmabuf::DmaBufMR other_owner(rdmabuf::DmaBufMR& region) {
#ifdef MUST_COMPILE
    return std::move(region);
#else
    return region;
#endif
}
