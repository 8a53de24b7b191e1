// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "call_script.hpp"
#include "device_memory.hpp"
#include "fake_level_zero.hpp"

namespace fake_level_zero {

using Result = unsigned;
inline constexpr Result success = 0;
inline constexpr Result out_of_device_memory = 0x70000003;
inline constexpr Result unsupported_feature = 0x78000003;
inline constexpr Result invalid_argument = 0x78000004;

/// What a context is known by. Never freed: those of rdmabuf outlive a reset.
struct Context {
    unsigned number;
};

/// Pages that a descriptor stands for: one allocation's, or a pool's.
struct Block {
    std::size_t size = 0;
    /// Where the addresses around it begin.
    std::uint64_t taken = 0;
    /// The driver's own descriptor; -1 until somebody asks.
    int fd = -1;
    /// The file that it was opened as.
    ino_t file = 0;
    unsigned ipc_references = 0;
};

struct Allocation {
    std::size_t size = 0;
    std::uint64_t block = 0;
    FakeLevelZeroKind kind = FakeLevelZeroKind::device;
    const Context* context = nullptr;
    unsigned gpu = 0;
    bool described = false;
    std::uint64_t id = 0;
};

struct Gpu {
    unsigned type = 1;
    unsigned export_types = 2;
};

/// What another thread does in between.
struct Interference {
    std::uint64_t address;
    bool again;
};

/// All there is; the lock is held by whoever uses it.
struct Machine {
    std::mutex mutex;
    fake_driver::DeviceMemory memory;
    std::map<std::uint64_t, Allocation> allocations;
    std::map<std::uint64_t, Block> blocks;
    std::vector<Gpu> gpus;
    fake_driver::CallScript script;
    std::map<std::string, Interference> interferences;
    std::set<const void*> lists;
    std::vector<Context*> contexts;
    Context program{};
    bool initialised = false;
    std::uint64_t last_id = 0;
    bool lenient = false;
    Result undescribed = unsupported_feature;
    std::size_t shortfall = 0;
    std::size_t page_size = 0;
    bool inheritable = false;
    bool no_descriptor = false;
    bool descriptor_was_closed = false;

    static Machine& get();
    void reset(unsigned count);

    /// @return its address, 0 when there is no room
    std::uint64_t allocate(Allocation allocation);
    /// False when nothing begins at @p address.
    bool free(std::uint64_t address);
    /// Does what was planned for before a call of @p function.
    void interfere(const std::string& function);
    /// Null when nothing holds @p address, or not in that context.
    Allocation* holder(const void* context, std::uint64_t address, std::uint64_t* base);
    /// The driver's descriptor of a block, opened now if it is not; negative when it cannot be.
    int descriptor(std::uint64_t start);

  private:
    void close_descriptor(Block& block);
};

} // namespace fake_level_zero
