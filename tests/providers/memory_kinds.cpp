// SPDX-License-Identifier: BSD-3-Clause
#include "loopback.hpp"

// Memory of a fake driver, for every verb of tests/support.
std::vector<std::string> rdmabuf::testing::memory_kinds() {
    return {MEMORY_KIND};
}
