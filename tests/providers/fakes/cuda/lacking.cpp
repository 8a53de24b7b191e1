// SPDX-License-Identifier: BSD-3-Clause
// A driver from before dma-bufs: it loads, and lacks what the others have.

extern "C" int cuInit(unsigned /*flags*/) {
    return 0;
}
extern "C" int cuGetErrorName(int /*result*/, const char** name) {
    *name = nullptr;
    return 1;
}
