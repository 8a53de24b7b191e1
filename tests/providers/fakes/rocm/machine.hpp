// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "call_script.hpp"
#include "device_memory.hpp"
#include "fake_rocm.hpp"
#include "rocm/rocm_abi.hpp"

namespace fake_rocm {

namespace abi = rdmabuf::detail::rocm;

/// Whom to tell of a deallocation.
struct Notifier {
    void* pointer;
    abi::DeallocationCallback* callback;
    void* data;
};

struct Allocation {
    std::size_t size = 0;
    /// The dma-buf it lies in.
    std::uint64_t block = 0;
    std::size_t block_size = 0;
    abi::PointerType type = abi::PointerType::hsa;
    abi::Agent owner;
    bool mute = false;
    std::vector<Notifier> notifiers;
};
using Allocations = std::map<std::uint64_t, Allocation>;

/// What another thread does in between.
struct Interference {
    std::uint64_t address;
    bool again;
};

constexpr std::uint64_t cpu = 1;
constexpr std::uint64_t first_gpu = 2;
/// How far the device's addresses of locked memory are from the program's.
constexpr std::uint64_t locked_distance = std::uint64_t{1} << 46U;

/// All there is; the lock is held by whoever uses it, but for what says otherwise.
struct Machine {
    std::mutex mutex;
    fake_driver::DeviceMemory memory;
    Allocations allocations;
    int gpus = 0;
    fake_driver::CallScript script;
    std::map<std::string, Interference> interferences;
    unsigned references = 0;
    /// The process that initialised it; 0 when none did.
    pid_t process = 0;
    std::set<int> exports;
    bool dmabufs = true;
    abi::Status pcie = 0;
    std::size_t shortfall = 0;
    std::uint64_t displacement = 0;
    bool inheritable = false;
    bool no_descriptor = false;
    bool packed = false;
    bool mute = false;
    bool fine_only = false;
    bool short_info = false;
    /// Where the next packed allocation goes, and how much room there is.
    std::uint64_t open_block = 0;
    std::size_t open_used = 0;

    static Machine& get();
    void reset(int count);
    void drop_memory();

    std::uint64_t allocate(Allocation allocation, bool visible);
    /// Takes the lock itself, and calls back without it. False when nothing begins at @p address.
    bool free(std::uint64_t address);
    /// Does what was planned for before a call of @p function. Takes the lock itself.
    void interfere(const std::string& function);
    /// Null when nothing holds @p address.
    Allocation* holder(std::uint64_t address, std::uint64_t* base);
};

} // namespace fake_rocm
