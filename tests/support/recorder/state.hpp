// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "verbs_recorder.hpp"

/// What the parts of the recorder share.
namespace rdmabuf::testing::recorder {

struct State {
    std::recursive_mutex mutex;
    Record record;
    std::function<void(const char*)> observer;
    unsigned posting_calls = 0;
};
[[nodiscard]] State& state();

/// For what is recorded of a call.
class Writing {
  public:
    Writing() : lock_(state().mutex) {}
    Record* operator->() const { return &state().record; }

  private:
    std::scoped_lock<std::recursive_mutex> lock_;
};

/// At the begin of each call that makes, changes or asks for something.
void notify_observer(const char* verb);

/// The function of that name that the program would have called.
template <class Function>
Function* next(const char* name) {
    void* const found = ::dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        std::fprintf(stderr, "there is no %s\n", name);
        std::abort();
    }
    return reinterpret_cast<Function*>(found);
}

/// Puts the recorder into the function pointers of a context or queue pair; once that is gone,
/// forgets what it had there.
void enter_context(ibv_context* context);
void leave_context(ibv_context* context);
void enter_queue_pair(ibv_qp* qp);
void leave_queue_pair(ibv_qp* qp);

} // namespace rdmabuf::testing::recorder
