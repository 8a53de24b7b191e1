// SPDX-License-Identifier: BSD-3-Clause
// A library from before dma-bufs: it has one function of the vendor and lacks all others.

extern "C" int PRESENT_FUNCTION() {
    return 0;
}
