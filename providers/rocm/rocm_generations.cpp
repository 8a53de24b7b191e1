// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_generations.hpp"

#include <unistd.h>

#include <iterator>

namespace rdmabuf::detail::rocm {

Generations& Generations::of_process() {
    static auto* const generations = new Generations;
    return *generations;
}

void Generations::enter() {
    const std::lock_guard lock(mutex_);
    ++holders_;
    process_ = ::getpid();
}

void Generations::leave(const Driver& driver) noexcept {
    const std::lock_guard lock(mutex_);
    if (--holders_ != 0) {
        return;
    }
    for (const auto& [base, generation] : known_) {
        // The result is ignored. The call fails if another thread is freeing the allocation. HSA
        // then calls the deallocation callback freed(), which finds no entry in the map.
        (void)driver.functions().deregister_deallocation_callback(pointer_to(base), &freed);
    }
    known_.clear();
    process_ = 0;
}

std::optional<Generations::Known> Generations::nearest(std::uintptr_t address) const {
    const std::lock_guard lock(mutex_);
    const auto after = known_.upper_bound(address);
    if (after == known_.begin()) {
        return std::nullopt;
    }
    const auto& [base, generation] = *std::prev(after);
    return Known{.base = base, .generation = generation};
}

bool Generations::still(const Known& known) const {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(known.base);
    return found != known_.end() && found->second == known.generation;
}

bool Generations::watch(const Driver& driver, std::uintptr_t base) {
    // The lock is held while the deallocation callback freed() is registered. If HSA calls freed()
    // at once, freed() waits for the lock and then finds the entry. There is no deadlock, because
    // HSA holds no lock during callbacks.
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = known_.try_emplace(base, last_ + 1);
    if (!added) {
        return true;
    }
    const std::uint64_t generation = ++last_;
    if (driver.functions().register_deallocation_callback(pointer_to(base), &freed,
                                                          pointer_to(generation)) != success) {
        known_.erase(entry);
        return false;
    }
    return true;
}

void Generations::forget(const Known& known) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(known.base);
    if (found != known_.end() && found->second == known.generation) {
        known_.erase(found);
    }
}

void Generations::freed(void* pointer, void* data) noexcept {
    of_process().forget({.base = reinterpret_cast<std::uintptr_t>(pointer),
                         .generation = reinterpret_cast<std::uintptr_t>(data)});
}

} // namespace rdmabuf::detail::rocm
