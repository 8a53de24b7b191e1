// SPDX-License-Identifier: BSD-3-Clause
#include "loopback.hpp"

std::vector<std::string> rdmabuf::testing::memory_kinds() {
    return {"host", "drm", "dma_heap", "udmabuf", "dm"};
}
