// SPDX-License-Identifier: BSD-3-Clause
#include "abi/real_library.hpp"

#include <dlfcn.h>

namespace softverbs {

namespace {

/// Returns the real libibverbs if the program has loaded the front library (softverbs/front), and
/// null otherwise. The command `softverbs run` makes programs load the front library instead of the
/// real one. The front library has the name libibverbs.so.1, and loads the real library as
/// libibverbs-real.so.1.
void* library_behind_front() {
    return ::dlopen("libibverbs-real.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

thread_local unsigned real_devices_only = 0;

} // namespace

RealDevicesOnly::RealDevicesOnly() noexcept {
    ++real_devices_only;
}

RealDevicesOnly::~RealDevicesOnly() {
    --real_devices_only;
}

bool RealDevicesOnly::active() noexcept {
    return real_devices_only != 0;
}

void* real_symbol(const char* name) {
    static void* const behind_front = library_behind_front();
    return ::dlsym(behind_front != nullptr ? behind_front : RTLD_NEXT, name);
}

} // namespace softverbs
