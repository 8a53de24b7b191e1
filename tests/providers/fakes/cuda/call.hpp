// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include "machine.hpp"

namespace fake_cuda {

/// A call, counted, with the machine locked; the result it fails with before it is looked at.
class Call {
  public:
    explicit Call(const char* function) : machine_(Machine::get()), lock_(machine_.mutex) {
        const auto planned = machine_.script.enter(function);
        machine_.interfere(function);
        if (planned) {
            refused_ = *planned;
        } else if (machine_.initialised != ::getpid()) {
            refused_ = abi::not_initialized;
        }
    }

    [[nodiscard]] abi::Result refused() const noexcept { return refused_; }
    Machine* operator->() const noexcept { return &machine_; }

    [[nodiscard]] bool has_device(abi::Device device) const {
        return device >= 0 && static_cast<std::size_t>(device) < machine_.devices.size();
    }
    [[nodiscard]] Device& device(abi::Device device) const {
        return machine_.devices[static_cast<std::size_t>(device)];
    }
    /// Whether what is current can reach the memory: its own context, or any of its device where it
    /// has none.
    [[nodiscard]] bool reaches(const Allocation& allocation) const {
        if (contexts().empty()) {
            return false;
        }
        const abi::Context current = contexts().back();
        return allocation.context != nullptr ? current == allocation.context
                                             : current->device == allocation.device;
    }

  private:
    Machine& machine_;
    std::lock_guard<std::mutex> lock_;
    abi::Result refused_ = abi::success;
};

/// Whether what is current may copy so many bytes from or to an address.
inline abi::Result check_copy(const Call& call, std::uint64_t address, std::size_t size) {
    if (call.refused() != abi::success) {
        return call.refused();
    }
    // Mappings that follow one another are copied as one.
    const std::uint64_t end = address + size;
    while (address < end) {
        std::uint64_t base = 0;
        const Allocation* const found = call->holder(address, &base);
        if (found == nullptr || (end > base + found->size && !found->mapped())) {
            return abi::invalid_value;
        }
        if (!call.reaches(*found)) {
            return abi::invalid_context;
        }
        address = base + found->size;
    }
    return abi::success;
}

} // namespace fake_cuda
