// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>

#include "call_script.hpp"
#include "device_memory.hpp"
#include "fake_habana.hpp"
#include "habana/habana_abi.hpp"

struct rdmabuf::detail::habana::OpaqueStream {
    int unused;
};

namespace fake_habana {

namespace abi = rdmabuf::detail::habana;

/// What Synapse takes all of a device's memory as.
inline constexpr std::size_t pool_size = std::size_t{64} << 20U;

/// All there is; the lock is held by whoever uses it.
struct Machine {
    std::mutex mutex;
    fake_driver::DeviceMemory memory;
    fake_driver::CallScript script;
    FakeHabanaFaults faults;
    unsigned devices = 1;
    /// Open devices, by descriptor.
    std::map<int, abi::DeviceName> open;
    /// Their sizes, by where they begin.
    std::map<std::uint64_t, std::size_t> mappings;
    std::size_t exported = 0;

    /// What Synapse has: -1, and nothing else, until a device is acquired.
    bool initialised = false;
    int acquired = -1;
    std::uint64_t pool = 0;
    std::map<std::uint64_t, std::size_t> buffers;
    std::set<void*> host_buffers;
    abi::Stream stream = nullptr;

    static Machine& get();
    void reset(unsigned count);
    int open_device(abi::DeviceName name);
    void close_device(int fd);
    std::uint64_t map(std::size_t size);
    void unmap(std::uint64_t mapping);
    /// A descriptor of a whole mapping, or the errno negated.
    int share(std::uint64_t mapping, std::size_t wanted);
    /// Whether @p size bytes from @p address on are of buffers.
    [[nodiscard]] bool allocated(std::uint64_t address, std::size_t size) const;
};

/// A call, counted, with the machine locked.
class Call {
  public:
    explicit Call(const char* function)
        : machine_(Machine::get()),
          lock_(machine_.mutex),
          refused_(machine_.script.enter(function).value_or(0)) {}
    /// What it fails with before it is looked at; 0: nothing.
    [[nodiscard]] int refused() const noexcept { return refused_; }
    Machine* operator->() const noexcept { return &machine_; }

  private:
    Machine& machine_;
    std::lock_guard<std::mutex> lock_;
    int refused_;
};

} // namespace fake_habana
