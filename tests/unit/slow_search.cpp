// SPDX-License-Identifier: BSD-3-Clause
// The linker directs the library's calls of dlsym(3) here, by its option --wrap.
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
