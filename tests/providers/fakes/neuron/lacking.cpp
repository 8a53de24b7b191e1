// SPDX-License-Identifier: BSD-3-Clause
// A runtime from before dma-bufs: it loads, and lacks what the others have.

extern "C" int nrt_init(int /*framework*/, const char* /*version*/, const char* /*layer*/) {
    return 0;
}
