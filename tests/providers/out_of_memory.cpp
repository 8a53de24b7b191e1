// SPDX-License-Identifier: BSD-3-Clause
#include "out_of_memory.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local bool out_of_memory = false;

} // namespace

// In a file of their own: where the compiler sees into both, it takes malloc for the wrong partner
// of operator delete.
void* operator new(std::size_t size) {
    void* const memory = out_of_memory ? nullptr : std::malloc(size != 0 ? size : 1);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
    std::free(memory);
}

namespace rdmabuf::testing {

OutOfMemory::OutOfMemory() noexcept {
    out_of_memory = true;
}

OutOfMemory::~OutOfMemory() {
    out_of_memory = false;
}

} // namespace rdmabuf::testing
