// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "verbs_recorder.hpp"

/// The state that the source files of the recorder share.
namespace rdmabuf::testing::recorder {

struct State {
    std::recursive_mutex mutex;
    Record record;
    std::function<void(const char*)> observer;
    std::function<void()> deregistration_observer;
    unsigned posting_calls = 0;
};
[[nodiscard]] State& state();

/// Locks the record while the object exists, and gives access to it.
class Writing {
  public:
    Writing() : lock_(state().mutex) {}
    Record* operator->() const { return &state().record; }

  private:
    std::scoped_lock<std::recursive_mutex> lock_;
};

/// Must be called at the start of each recorded call that creates, modifies or queries an object.
void notify_observer(const char* verb);

/// Returns the function that the program would call without the recorder. Aborts if there is none.
template <class Function>
Function* next(const char* name) {
    void* const found = ::dlsym(RTLD_NEXT, name);
    if (found == nullptr) {
        std::fprintf(stderr, "there is no %s\n", name);
        std::abort();
    }
    return reinterpret_cast<Function*>(found);
}

/// The enter functions replace the function pointers of a context or queue pair. The leave
/// functions forget the original pointers, and must be called after the object is destroyed.
void enter_context(ibv_context* context);
void leave_context(ibv_context* context);
void enter_queue_pair(ibv_qp* qp);
void leave_queue_pair(ibv_qp* qp);

} // namespace rdmabuf::testing::recorder
