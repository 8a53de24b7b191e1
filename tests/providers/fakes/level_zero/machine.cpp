// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

namespace fake_level_zero {
namespace {

/// 0 when it is none.
ino_t file_of(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
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

void Machine::reset(unsigned count) {
    for (auto& [start, block] : blocks) {
        close_descriptor(block);
    }
    memory.reset();
    blocks.clear();
    allocations.clear();
    gpus = std::vector<Gpu>(count);
    script = {};
    interferences.clear();
    initialised = false;
    lenient = false;
    undescribed = unsupported_feature;
    shortfall = 0;
    page_size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    inheritable = false;
    no_descriptor = false;
    descriptor_was_closed = false;
}

std::uint64_t Machine::allocate(Allocation allocation) {
    const std::size_t whole = (allocation.size + page_size - 1) / page_size * page_size;
    // Room to begin on one of the driver's pages, which may be larger than the CPU's.
    const std::size_t room = page_size - static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t taken =
        memory.take(whole + room, allocation.kind == FakeLevelZeroKind::host);
    if (taken == 0) {
        return 0;
    }
    const std::uint64_t start = (taken + room) / page_size * page_size;
    blocks.emplace(start, Block{.size = whole, .taken = taken});
    allocation.block = start;
    allocation.id = ++last_id;
    allocations.emplace(start, allocation);
    return start;
}

void Machine::close_descriptor(Block& block) {
    if (block.fd < 0) {
        return;
    }
    if (file_of(block.fd) == block.file) {
        ::close(block.fd);
    } else {
        descriptor_was_closed = true;
    }
    block.fd = -1;
}

bool Machine::free(std::uint64_t address) {
    const auto found = allocations.find(address);
    if (found == allocations.end()) {
        return false;
    }
    const std::uint64_t block = found->second.block;
    allocations.erase(found);
    close_descriptor(blocks.at(block));
    memory.give_back(blocks.at(block).taken);
    blocks.erase(block);
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
    if (again && allocate(freed) != address) {
        std::abort();
    }
}

Allocation* Machine::holder(const void* context, std::uint64_t address, std::uint64_t* base) {
    const auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) {
        return nullptr;
    }
    const auto found = std::prev(after);
    if (address - found->first >= found->second.size ||
        (!lenient && found->second.context != context)) {
        return nullptr;
    }
    if (base != nullptr) {
        *base = found->first;
    }
    return &found->second;
}

int Machine::descriptor(std::uint64_t start) {
    Block& block = blocks.at(start);
    if (block.fd >= 0 && file_of(block.fd) != block.file) {
        descriptor_was_closed = true;
        block.fd = -1;
    }
    if (block.fd < 0) {
        block.fd = memory.share(start, block.size - shortfall);
        block.file = file_of(block.fd);
        if (inheritable) {
            ::fcntl(block.fd, F_SETFD, 0);
        }
    }
    return block.fd;
}

} // namespace fake_level_zero

using fake_level_zero::Machine;
using fake_level_zero::Result;

namespace {

std::lock_guard<std::mutex> locked() {
    return std::lock_guard(Machine::get().mutex);
}

/// An IPC handle of the fake: where the block begins, and nothing that looks like a descriptor.
std::uint64_t block_of(const void* handle) {
    std::uint64_t block = 0;
    std::memcpy(&block, handle, sizeof(block));
    return ~block;
}

} // namespace

void fake_level_zero_reset(unsigned gpus) {
    const auto lock = locked();
    Machine::get().reset(gpus);
}

void fake_level_zero_fail(const char* function, unsigned nth, unsigned result) {
    const auto lock = locked();
    Machine::get().script.fail(function, nth, static_cast<int>(result));
}

void fake_level_zero_free_before(const char* function, std::uint64_t address, bool again) {
    const auto lock = locked();
    Machine::get().interferences[function] = {.address = address, .again = again};
}

unsigned fake_level_zero_calls(const char* function) {
    const auto lock = locked();
    return Machine::get().script.calls(function);
}

unsigned fake_level_zero_all_calls() {
    const auto lock = locked();
    return Machine::get().script.all_calls();
}

void fake_level_zero_set_lenient(bool lenient) {
    const auto lock = locked();
    Machine::get().lenient = lenient;
}

void fake_level_zero_set_undescribed(unsigned result) {
    const auto lock = locked();
    Machine::get().undescribed = result;
}

void fake_level_zero_set_export_types(unsigned gpu, unsigned types) {
    const auto lock = locked();
    Machine::get().gpus.at(gpu).export_types = types;
}

void fake_level_zero_set_device_type(unsigned gpu, unsigned type) {
    const auto lock = locked();
    Machine::get().gpus.at(gpu).type = type;
}

void fake_level_zero_set_shortfall(std::size_t bytes) {
    const auto lock = locked();
    Machine::get().shortfall = bytes;
}

void fake_level_zero_set_page_size(std::size_t bytes) {
    const auto lock = locked();
    Machine::get().page_size = bytes;
}

void fake_level_zero_set_inheritable(bool inheritable) {
    const auto lock = locked();
    Machine::get().inheritable = inheritable;
}

void fake_level_zero_set_no_descriptor(bool none) {
    const auto lock = locked();
    Machine::get().no_descriptor = none;
}

std::uint64_t fake_level_zero_make(FakeLevelZeroKind kind, std::size_t size, unsigned gpu,
                                   bool described) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    return machine.allocate({.size = size,
                             .kind = kind,
                             .context = &machine.program,
                             .gpu = gpu,
                             .described = described});
}

std::uint64_t fake_level_zero_make_pooled(std::size_t pool_size, std::size_t offset,
                                          std::size_t size) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    const std::uint64_t pool = machine.allocate({.size = pool_size, .context = &machine.program});
    // What is cut from it is known by the pool's id.
    auto node = machine.allocations.extract(pool);
    node.key() = pool + offset;
    node.mapped().size = size;
    machine.allocations.insert(std::move(node));
    return pool + offset;
}

void fake_level_zero_free(std::uint64_t address) {
    const auto lock = locked();
    Machine::get().free(address);
}

unsigned fake_level_zero_live() {
    const auto lock = locked();
    return static_cast<unsigned>(Machine::get().allocations.size() + Machine::get().lists.size());
}

void* fake_level_zero_bytes(std::uint64_t address) {
    const auto lock = locked();
    return Machine::get().memory.bytes(address);
}

void* fake_level_zero_program_context() {
    return &Machine::get().program;
}

unsigned fake_level_zero_contexts() {
    const auto lock = locked();
    return static_cast<unsigned>(Machine::get().contexts.size());
}

int fake_level_zero_descriptor(std::uint64_t address) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    return machine.blocks.at(machine.allocations.at(address).block).fd;
}

bool fake_level_zero_descriptor_was_closed() {
    const auto lock = locked();
    Machine& machine = Machine::get();
    for (const auto& [start, block] : machine.blocks) {
        if (block.fd >= 0) {
            machine.descriptor(start);
        }
    }
    return machine.descriptor_was_closed;
}

unsigned fake_level_zero_put_ipc_handle(const void* handle) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    if (const auto planned = machine.script.enter("zeMemPutIpcHandle")) {
        return static_cast<Result>(*planned);
    }
    const auto found = machine.blocks.find(block_of(handle));
    if (found == machine.blocks.end() || found->second.ipc_references == 0) {
        return fake_level_zero::invalid_argument;
    }
    // With the last of them the driver closes what it kept.
    if (--found->second.ipc_references == 0) {
        ::close(std::exchange(found->second.fd, -1));
    }
    return fake_level_zero::success;
}

unsigned fake_level_zero_descriptor_of_ipc_handle(const void* handle, std::uint64_t* fd) {
    const auto lock = locked();
    Machine& machine = Machine::get();
    const auto planned = machine.script.enter("zeMemGetFileDescriptorFromIpcHandleExp");
    machine.interfere("zeMemGetFileDescriptorFromIpcHandleExp");
    if (planned) {
        return static_cast<Result>(*planned);
    }
    const auto found = machine.blocks.find(block_of(handle));
    if (found == machine.blocks.end() || found->second.ipc_references == 0) {
        return fake_level_zero::invalid_argument;
    }
    *fd = machine.no_descriptor ? UINT64_MAX : static_cast<std::uint64_t>(found->second.fd);
    return fake_level_zero::success;
}

unsigned fake_level_zero_ipc_handles() {
    const auto lock = locked();
    unsigned sum = 0;
    for (const auto& [start, block] : Machine::get().blocks) {
        sum += block.ipc_references;
    }
    return sum;
}
