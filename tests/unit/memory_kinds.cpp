// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/detail/config.hpp>

#include "loopback.hpp"

// Returns the kinds of memory that need no GPU.
std::vector<std::string> rdmabuf::testing::memory_kinds() {
    std::vector<std::string> kinds{"host", "dm"};
#if RDMABUF_HAVE_PROVIDER_MEMFD
    kinds.emplace_back("memfd");
#endif
#if RDMABUF_HAVE_PROVIDER_VERBS_DM
    kinds.emplace_back("verbs_dm");
#endif
    return kinds;
}
