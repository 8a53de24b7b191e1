// SPDX-License-Identifier: BSD-3-Clause
// The program is linked with the option --wrap=dlsym, so the library calls __wrap_dlsym() instead
// of dlsym(3).
#include "slow_search.hpp"

namespace rdmabuf::testing {

constinit std::atomic<bool> searches_wait = false;
constinit std::atomic<unsigned> waiting_searches = 0;
constinit std::latch searches_end{1};

} // namespace rdmabuf::testing

using namespace rdmabuf::testing;

extern "C" {
void* __real_dlsym(void* handle, const char* name);
void* __wrap_dlsym(void* handle, const char* name) {
    if (searches_wait) {
        ++waiting_searches;
        searches_end.wait();
    }
    return __real_dlsym(handle, name);
}
}
