// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace fake_rocm {
namespace {

constexpr std::size_t packing = 512;
constexpr std::size_t packed_block = std::size_t{2} << 20U;

} // namespace

Machine& Machine::get() {
    static auto* const machine = [] {
        auto* const made = new Machine;
        made->reset(1);
        return made;
    }();
    return *machine;
}

void Machine::drop_memory() {
    memory.reset();
    allocations.clear();
    open_block = 0;
    open_used = 0;
}

void Machine::reset(int count) {
    drop_memory();
    gpus = count;
    script = {};
    interferences.clear();
    references = 0;
    process = 0;
    exports.clear();
    dmabufs = true;
    pcie = 0;
    shortfall = 0;
    displacement = 0;
    inheritable = false;
    no_descriptor = false;
    packed = false;
    mute = false;
    fine_only = false;
    short_info = false;
}

std::uint64_t Machine::allocate(Allocation allocation, bool visible) {
    std::uint64_t start = 0;
    if (packed && !visible && allocation.size < packed_block) {
        const std::size_t room = (allocation.size + packing - 1) / packing * packing;
        if (open_block == 0 || open_used + room > packed_block) {
            open_block = memory.take(packed_block, false);
            open_used = packing;
        }
        start = open_block + open_used;
        open_used += room;
        allocation.block = open_block;
        allocation.block_size = packed_block;
    } else {
        start = memory.take(allocation.size, visible);
        allocation.block = start;
        allocation.block_size = allocation.size;
    }
    if (start == 0) {
        return 0;
    }
    allocation.mute = mute;
    allocations.emplace(start, std::move(allocation));
    return start;
}

bool Machine::free(std::uint64_t address) {
    Allocation freed;
    {
        const std::lock_guard lock(mutex);
        const auto found = allocations.find(address);
        if (found == allocations.end()) {
            return false;
        }
        freed = std::move(found->second);
        allocations.erase(found);
    }
    // As the real one does it: the allocation is unknown by now, and its address not yet another's.
    for (const Notifier& notifier : freed.notifiers) {
        notifier.callback(notifier.pointer, notifier.data);
    }
    const std::lock_guard lock(mutex);
    for (const auto& [start, other] : allocations) {
        if (other.block == freed.block) {
            return true;
        }
    }
    if (freed.block == open_block) {
        open_block = 0;
    }
    memory.give_back(freed.block);
    return true;
}

void Machine::interfere(const std::string& function) {
    Interference planned{};
    Allocation freed;
    {
        const std::lock_guard lock(mutex);
        const auto found = interferences.find(function);
        if (found == interferences.end()) {
            return;
        }
        planned = found->second;
        interferences.erase(found);
        freed = allocations.at(planned.address);
    }
    free(planned.address);
    if (planned.again) {
        const std::lock_guard lock(mutex);
        freed.notifiers.clear();
        if (allocate(freed, false) != planned.address) {
            std::abort();
        }
    }
}

Allocation* Machine::holder(std::uint64_t address, std::uint64_t* base) {
    const auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) {
        return nullptr;
    }
    const auto found = std::prev(after);
    if (address - found->first >= found->second.size) {
        return nullptr;
    }
    if (base != nullptr) {
        *base = found->first;
    }
    return &found->second;
}

} // namespace fake_rocm

using fake_rocm::Machine;
namespace abi = rdmabuf::detail::rocm;

namespace {

/// The machine, locked.
class Locked {
  public:
    Locked() : lock_(Machine::get().mutex) {}
    Machine* operator->() const noexcept { return &Machine::get(); }

  private:
    std::lock_guard<std::mutex> lock_;
};

abi::PointerType type_of(FakeRocmKind kind) {
    switch (kind) {
        case FakeRocmKind::device:
        case FakeRocmKind::host:
            return abi::PointerType::hsa;
        case FakeRocmKind::locked:
            return abi::PointerType::locked;
        case FakeRocmKind::graphics:
            return abi::PointerType::graphics;
        case FakeRocmKind::ipc:
            return abi::PointerType::ipc;
        case FakeRocmKind::reserved:
            return abi::PointerType::reserved;
        case FakeRocmKind::mapped:
            return abi::PointerType::mapped;
    }
    return abi::PointerType::unknown;
}

} // namespace

void fake_rocm_reset(int gpus) {
    Locked()->reset(gpus);
}

void fake_rocm_fail(const char* function, unsigned nth, int status) {
    Locked()->script.fail(function, nth, status);
}

void fake_rocm_free_before(const char* function, std::uint64_t address, bool again) {
    Locked()->interferences[function] = {.address = address, .again = again};
}

unsigned fake_rocm_calls(const char* function) {
    return Locked()->script.calls(function);
}

unsigned fake_rocm_all_calls() {
    return Locked()->script.all_calls();
}

void fake_rocm_set_dmabufs(bool supported) {
    Locked()->dmabufs = supported;
}

void fake_rocm_set_pcie(int status) {
    Locked()->pcie = status;
}

void fake_rocm_set_shortfall(std::size_t bytes) {
    Locked()->shortfall = bytes;
}

void fake_rocm_set_displacement(std::uint64_t bytes) {
    Locked()->displacement = bytes;
}

void fake_rocm_set_inheritable(bool inheritable) {
    Locked()->inheritable = inheritable;
}

void fake_rocm_set_no_descriptor(bool none) {
    Locked()->no_descriptor = none;
}

void fake_rocm_set_packed(bool packed) {
    Locked()->packed = packed;
}

void fake_rocm_set_mute(bool mute) {
    Locked()->mute = mute;
}

void fake_rocm_set_fine_only(bool fine) {
    Locked()->fine_only = fine;
}

void fake_rocm_set_short_info(bool is_short) {
    Locked()->short_info = is_short;
}

std::uint64_t fake_rocm_make(FakeRocmKind kind, std::size_t size, int gpu) {
    const bool host = kind == FakeRocmKind::host || kind == FakeRocmKind::locked;
    fake_rocm::Allocation allocation;
    allocation.size = size;
    allocation.type = type_of(kind);
    allocation.owner.handle =
        host ? fake_rocm::cpu : fake_rocm::first_gpu + static_cast<std::uint64_t>(gpu);
    return Locked()->allocate(std::move(allocation), host);
}

void fake_rocm_free(std::uint64_t address) {
    Machine::get().free(address);
}

void fake_rocm_lose(std::uint64_t address) {
    Locked()->allocations.at(address).notifiers.clear();
    Machine::get().free(address);
}

unsigned fake_rocm_live() {
    return static_cast<unsigned>(Locked()->allocations.size());
}

unsigned fake_rocm_references() {
    return Locked()->references;
}

unsigned fake_rocm_watched() {
    const Locked machine;
    std::size_t count = 0;
    for (const auto& [start, allocation] : machine->allocations) {
        count += allocation.notifiers.size();
    }
    return static_cast<unsigned>(count);
}

unsigned fake_rocm_open_exports() {
    return static_cast<unsigned>(Locked()->exports.size());
}

void* fake_rocm_bytes(std::uint64_t address) {
    return Locked()->memory.bytes(address);
}
