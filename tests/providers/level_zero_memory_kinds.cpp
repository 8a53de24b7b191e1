// SPDX-License-Identifier: BSD-3-Clause
#include "loopback.hpp"

// Memory of the fake driver, for every verb of tests/loopback.
std::vector<std::string> rdmabuf::testing::memory_kinds() {
    return {"level_zero"};
}
