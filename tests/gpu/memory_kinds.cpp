// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/cuda.hpp>

#include "loopback.hpp"

// A GPU's, for every verb of tests/support, where there is one.
std::vector<std::string> rdmabuf::testing::memory_kinds() {
    return make_cuda_exporter()->availability() ? std::vector<std::string>{"cuda"}
                                                : std::vector<std::string>{};
}
