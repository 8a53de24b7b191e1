// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

namespace fake_cuda {
namespace {

constexpr std::size_t packing = 512;
constexpr std::size_t packed_block = std::size_t{2} << 20U;

/// What a GPU of today says of itself.
std::map<int, int> usual_attributes() {
    return {{18, 0}, {116, 1}, {117, 1}, {118, 0}, {124, 1}, {146, 0}};
}

void add_environment(std::map<int, int>& attributes) {
    const char* const wanted = std::getenv("FAKE_CUDA_ATTRIBUTES");
    std::istringstream text(wanted != nullptr ? wanted : "");
    int attribute = 0;
    int value = 0;
    char equals = 0;
    char comma = 0;
    while (text >> attribute >> equals >> value) {
        attributes[attribute] = value;
        text >> comma;
    }
}

} // namespace

Machine& Machine::get() {
    static auto* const machine = [] {
        auto* const made = new Machine;
        made->reset(1);
        return made;
    }();
    return *machine;
}

void Machine::reset(int count) {
    memory.reset();
    allocations.clear();
    // Not moved from here on: contexts are known by their addresses.
    devices = std::vector<Device>(static_cast<std::size_t>(count));
    for (int device = 0; device < count; ++device) {
        Device& made = devices[static_cast<std::size_t>(device)];
        made.attributes = usual_attributes();
        add_environment(made.attributes);
        made.primary.device = device;
        made.program = {.device = device, .alive = true, .references = 1};
    }
    script = {};
    interferences.clear();
    initialised = 0;
    pcie = 0;
    shortfall = 0;
    inheritable = false;
    no_descriptor = false;
    packed = false;
    unknown_attributes.clear();
    open_block = 0;
    open_used = 0;
    flushed_scope = 0;
    flushed_context = nullptr;
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
    allocation.id = ++last_id;
    allocations.emplace(start, allocation);
    return start;
}

bool Machine::free(std::uint64_t address) {
    const auto found = allocations.find(address);
    if (found == allocations.end()) {
        return false;
    }
    const std::uint64_t block = found->second.block;
    allocations.erase(found);
    for (const auto& [start, other] : allocations) {
        if (other.block == block) {
            return true;
        }
    }
    if (block == open_block) {
        open_block = 0;
    }
    memory.give_back(block);
    return true;
}

void Machine::interfere(const std::string& function) {
    const auto planned = interferences.find(function);
    if (planned == interferences.end()) {
        return;
    }
    const auto [address, again] = planned->second;
    interferences.erase(planned);
    const Allocation freed = allocations.at(address);
    free(address);
    if (again && allocate(freed, false) != address) {
        std::abort();
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

std::vector<abi::Context>& contexts() {
    thread_local std::vector<abi::Context> stack;
    return stack;
}

} // namespace fake_cuda

using fake_cuda::Machine;
namespace abi = rdmabuf::detail::cuda;

namespace {

std::lock_guard<std::mutex> locked() {
    return std::lock_guard(Machine::get().mutex);
}

fake_cuda::Device& device_at(int device) {
    return Machine::get().devices.at(static_cast<std::size_t>(device));
}

} // namespace

void fake_cuda_reset(int devices) {
    const auto lock = locked();
    Machine::get().reset(devices);
}

void fake_cuda_set_attribute(int device, int attribute, int value) {
    const auto lock = locked();
    device_at(device).attributes[attribute] = value;
}

void fake_cuda_fail(const char* function, unsigned nth, int result) {
    const auto lock = locked();
    Machine::get().script.fail(function, nth, result);
}

void fake_cuda_free_before(const char* function, std::uint64_t address, bool again) {
    const auto lock = locked();
    Machine::get().interferences[function] = {.address = address, .again = again};
}

unsigned fake_cuda_calls(const char* function) {
    const auto lock = locked();
    return Machine::get().script.calls(function);
}

unsigned fake_cuda_all_calls() {
    const auto lock = locked();
    return Machine::get().script.all_calls();
}

void fake_cuda_set_pcie(int result) {
    const auto lock = locked();
    Machine::get().pcie = result;
}

void fake_cuda_set_shortfall(std::size_t bytes) {
    const auto lock = locked();
    Machine::get().shortfall = bytes;
}

void fake_cuda_set_inheritable(bool inheritable) {
    const auto lock = locked();
    Machine::get().inheritable = inheritable;
}

void fake_cuda_set_no_descriptor(bool none) {
    const auto lock = locked();
    Machine::get().no_descriptor = none;
}

void fake_cuda_set_packed(bool packed) {
    const auto lock = locked();
    Machine::get().packed = packed;
}

void fake_cuda_forget_pointer_attribute(int attribute) {
    const auto lock = locked();
    Machine::get().unknown_attributes.insert(attribute);
}

std::uint64_t fake_cuda_make(FakeCudaKind kind, std::size_t size, int device) {
    const auto lock = locked();
    fake_cuda::Allocation allocation{.size = size, .device = device};
    allocation.managed = kind == FakeCudaKind::managed;
    allocation.pooled = kind == FakeCudaKind::pool;
    allocation.context = allocation.pooled ? nullptr : &device_at(device).program;
    allocation.type = kind == FakeCudaKind::host ? abi::MemoryType::host : abi::MemoryType::device;
    return Machine::get().allocate(allocation, kind == FakeCudaKind::host);
}

std::uint64_t fake_cuda_map(const FakeCudaMapping* mappings, unsigned count) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    std::size_t reserved = 0;
    for (unsigned i = 0; i < count; ++i) {
        reserved += mappings[i].size;
    }
    const std::uint64_t start = machine.memory.take(reserved, false);
    std::uint64_t at = start;
    for (unsigned i = 0; i < count; ++i) {
        if (!mappings[i].hole) {
            fake_cuda::Allocation allocation{.size = mappings[i].size, .block = start};
            allocation.block_size = reserved;
            allocation.device = mappings[i].device;
            allocation.capable = mappings[i].capable ? 1 : 0;
            allocation.id = ++machine.last_id;
            machine.allocations.emplace(at, allocation);
        }
        at += mappings[i].size;
    }
    return start;
}

void fake_cuda_map_anew(std::uint64_t address) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    machine.allocations.at(address).id = ++machine.last_id;
}

void fake_cuda_free(std::uint64_t address) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    const fake_cuda::Allocation* const first = machine.holder(address, nullptr);
    if (first == nullptr || !first->mapped()) {
        machine.free(address);
        return;
    }
    const std::uint64_t block = first->block;
    std::erase_if(machine.allocations,
                  [=](const auto& entry) { return entry.second.block == block; });
    machine.memory.give_back(block);
}

unsigned fake_cuda_live() {
    const auto lock = locked();
    return static_cast<unsigned>(Machine::get().allocations.size());
}

void* fake_cuda_bytes(std::uint64_t address) {
    const auto lock = locked();
    return Machine::get().memory.bytes(address);
}

void* fake_cuda_current_context() {
    return fake_cuda::contexts().empty() ? nullptr : fake_cuda::contexts().back();
}

unsigned fake_cuda_context_depth() {
    return static_cast<unsigned>(fake_cuda::contexts().size());
}

void* fake_cuda_program_context(int device) {
    const auto lock = locked();
    return &device_at(device).program;
}

void fake_cuda_destroy_program_context(int device) {
    const auto lock = locked();
    device_at(device).program.alive = false;
}

unsigned fake_cuda_primary_references(int device) {
    const auto lock = locked();
    return device_at(device).primary.references;
}

int fake_cuda_flushed_scope() {
    const auto lock = locked();
    return Machine::get().flushed_scope;
}

void* fake_cuda_flushed_context() {
    const auto lock = locked();
    return Machine::get().flushed_context;
}
