// SPDX-License-Identifier: BSD-3-Clause
// A loader from before Level Zero 1.0: it loads, and lacks what the others have.

extern "C" unsigned zeInit(unsigned /*flags*/) {
    return 0;
}
