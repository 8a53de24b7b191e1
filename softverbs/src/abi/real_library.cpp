// SPDX-License-Identifier: BSD-3-Clause
#include "abi/real_library.hpp"

#include <dlfcn.h>

namespace softverbs {

namespace {

/// The real libibverbs, loaded as a dependency of the front library under its special name. Null if
/// the front library is not in use, so that libibverbs.so.1 is the real library.
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
