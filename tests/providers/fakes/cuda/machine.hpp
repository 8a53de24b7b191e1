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
#include "cuda/cuda_abi.hpp"
#include "device_memory.hpp"
#include "fake_cuda.hpp"

struct rdmabuf::detail::cuda::OpaqueContext {
    int device;
    bool alive;
    unsigned references;
};

namespace fake_cuda {

namespace abi = rdmabuf::detail::cuda;

struct Allocation {
    std::size_t size = 0;
    /// The pages it lies in, or the reserved range.
    std::uint64_t block = 0;
    std::size_t block_size = 0;
    abi::MemoryType type = abi::MemoryType::device;
    bool managed = false;
    bool pooled = false;
    abi::Context context = nullptr;
    int device = 0;
    std::uint64_t id = 0;
    unsigned sync_memops = 0;
    unsigned capable = 1;

    [[nodiscard]] bool mapped() const noexcept {
        return type == abi::MemoryType::device && context == nullptr && !pooled;
    }
};
using Allocations = std::map<std::uint64_t, Allocation>;

struct Device {
    std::map<int, int> attributes;
    abi::OpaqueContext primary{};
    abi::OpaqueContext program{};
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
    Allocations allocations;
    std::vector<Device> devices;
    fake_driver::CallScript script;
    std::map<std::string, Interference> interferences;
    /// The process that initialised it; 0 when none did.
    pid_t initialised = 0;
    std::uint64_t last_id = 0;
    abi::Result pcie = 0;
    std::size_t shortfall = 0;
    bool inheritable = false;
    bool no_descriptor = false;
    bool packed = false;
    /// Pointer attributes that this driver is too old to know.
    std::set<int> unknown_attributes;
    /// Where the next packed allocation goes, and how much room there is.
    std::uint64_t open_block = 0;
    std::size_t open_used = 0;
    int flushed_scope = 0;
    abi::Context flushed_context = nullptr;

    static Machine& get();
    void reset(int count);

    std::uint64_t allocate(Allocation allocation, bool visible);
    /// False when nothing begins at @p address.
    bool free(std::uint64_t address);
    /// Does what was planned for before a call of @p function.
    void interfere(const std::string& function);
    /// Null when nothing holds @p address.
    Allocation* holder(std::uint64_t address, std::uint64_t* base);
};

/// Of the calling thread.
std::vector<abi::Context>& contexts();

} // namespace fake_cuda
