// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/region.hpp>

// A number is no access: it may be meant for something else, as queue pair states are.
rdmabuf::DmaBufOptions readable() {
#ifdef MUST_COMPILE
    return {.access = rdmabuf::Access::remote_read};
#else
    return {.access = IBV_ACCESS_REMOTE_READ};
#endif
}
