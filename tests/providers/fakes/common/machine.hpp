// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device_memory.hpp"
#include "fake_driver.hpp"

namespace fake_driver {

struct Context {
    unsigned device = 0;
    bool alive = false;
    unsigned references = 0;
    /// CUDA: the ID of the context at this address, which a context created there later lacks.
    unsigned long long id = next_id();

    [[nodiscard]] static unsigned long long next_id() {
        static std::atomic<unsigned long long> last = 0;
        return ++last;
    }
};

struct Device {
    std::map<int, int> attributes;
    Context primary;
};

/// A callback that the driver calls when the memory is freed.
struct Notifier {
    void* pointer;
    void (*callback)(void* pointer, void* data);
    void* data;
};

/// Whole pages that are exported together.
struct Block {
    std::size_t size = 0;
    /// Reserved addresses stay reserved without memory.
    bool reserved = false;
};

/// An allocation, or a mapping in reserved addresses.
struct Allocation {
    std::size_t size = 0;
    Kind kind = Kind::device;
    unsigned device = 0;
    bool exportable = true;
    const void* context = nullptr;
    /// Whether the vendor's functions allocated the memory, and not make().
    bool counted = false;
    std::uint64_t start = 0;
    std::uint64_t block = 0;
    /// No two allocations of a process have the same number.
    std::uint64_t id = 0;
    unsigned flags = 0;
    std::vector<Notifier> notifiers = {};
    /// State of the vendor's driver that ends with the allocation.
    std::shared_ptr<void> state = {};
};

/// What differs between the vendors' machines. Each fake driver defines vendor().
struct Vendor {
    /// The result of a call before the driver is initialised.
    int uninitialised = 0;
    /// Number of devices before the first reset().
    unsigned devices = 1;
    /// Attributes of a new device.
    std::map<int, int> attributes = {};
    std::map<Setting, std::int64_t> settings = {};
    /// Whether the program has one context for all devices, and not one for each.
    bool one_context = false;
    /// Whether make() initialises the driver, as a program does that has memory.
    bool make_initialises = false;
    /// Resets the vendor's own state. May be null.
    void (*reset)() = nullptr;
};
const Vendor& vendor();

/// The state of a fake driver. A caller of a member function holds the mutex, except where the
/// function's comment says otherwise.
struct Machine {
    std::mutex mutex;
    DeviceMemory memory;
    std::map<std::uint64_t, Block> blocks;
    std::map<std::uint64_t, Allocation> allocations;
    std::vector<Device> devices;
    /// Contexts of the program, by device. reset() does not change their addresses.
    std::array<Context, 8> program_contexts;
    std::set<int> forgotten_attributes;
    /// Objects other than memory: streams, command lists.
    std::set<const void*> objects;
    std::map<std::string, std::uint64_t> recorded;
    unsigned references = 0;

    static Machine& get();
    void reset(unsigned count);

    [[nodiscard]] std::int64_t setting(Setting setting) const {
        return settings_[static_cast<std::size_t>(setting)];
    }
    void set(Setting setting, std::int64_t value) {
        settings_[static_cast<std::size_t>(setting)] = value;
    }
    [[nodiscard]] bool has_device(std::int64_t device) const {
        return device >= 0 && static_cast<std::size_t>(device) < devices.size();
    }
    /// Returns none if the driver does not know the attribute.
    [[nodiscard]] std::optional<int> attribute(unsigned device, int attribute) const;

    /// Adds a reference for this process.
    void initialise();
    [[nodiscard]] bool initialised() const;
    /// Returns true if another process has initialised the driver: this process is its child.
    [[nodiscard]] bool initialised_by_parent() const;
    void free_all();

    /// @return the address, 0 if there is no room
    std::uint64_t allocate(Allocation allocation);
    /// Reserves whole pages. @return the address, 0 if there is no room
    std::uint64_t reserve(std::size_t size, bool visible = false);
    /// Allocates at an address in a reserved block.
    void place(std::uint64_t address, Allocation allocation);
    /// Returns the first free address in a block, 0 if there is no room.
    /// @param first  offset of the first address to use
    [[nodiscard]] std::uint64_t fit(std::uint64_t block, std::size_t size, std::size_t first,
                                    std::size_t alignment) const;
    /// Frees memory and calls its callbacks. The caller does not hold the mutex.
    /// @return false if no allocation begins at @p address
    bool free(std::uint64_t address);
    /// Returns the allocation that contains @p address, or null.
    [[nodiscard]] Allocation* holder(std::uint64_t address);
    /// Returns the bytes of a range inside one allocation, or null.
    [[nodiscard]] std::byte* range(std::uint64_t address, std::size_t size);
    /// Exports whole pages, as the settings say.
    /// @param fd  receives the descriptor, unless Setting::no_descriptor is set
    /// @return false if the kernel has no descriptor
    [[nodiscard]] bool share(std::uint64_t start, std::size_t size, int* fd);

    /// Counts a call. @return the result of a planned failure
    std::optional<int> enter(const std::string& function);
    /// Frees memory as free_before() planned. The caller does not hold the mutex.
    void interfere(const std::string& function);
    void plan_failure(const std::string& function, int result, unsigned nth, unsigned times) {
        failures_[function] = {.result = result, .nth = nth, .times = times};
    }
    void plan_free(const std::string& function, std::uint64_t address, bool again) {
        interferences_[function] = {.address = address, .again = again};
    }
    [[nodiscard]] const std::map<std::string, unsigned>& calls() const { return calls_; }

  private:
    struct Failure {
        int result;
        unsigned nth;
        unsigned times;
    };
    struct Interference {
        std::uint64_t address;
        bool again;
    };

    std::array<std::int64_t, static_cast<std::size_t>(Setting::count)> settings_{};
    std::map<std::string, unsigned> calls_;
    std::map<std::string, Failure> failures_;
    std::map<std::string, Interference> interferences_;
    std::uint64_t last_id_ = 0;
    std::uint64_t open_block_ = 0;
    /// The process that initialised the driver, 0 if none did.
    pid_t process_ = 0;
};

/// Whether a function needs an initialised driver.
enum class Needs : std::uint8_t { nothing, initialised };

/// Performs a call of a vendor's function: counts the call, returns a planned failure, and
/// otherwise calls @p body with the locked machine.
template <class Result, class Body>
Result call(const char* function, Needs needs, Body&& body) {
    Machine& machine = Machine::get();
    machine.interfere(function);
    const std::lock_guard lock(machine.mutex);
    if (const auto planned = machine.enter(function)) {
        return static_cast<Result>(*planned);
    }
    if (needs == Needs::initialised && !machine.initialised()) {
        return static_cast<Result>(vendor().uninitialised);
    }
    return body(machine);
}

[[nodiscard]] std::size_t cpu_page_size();
[[nodiscard]] inline std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) {
    return value / unit * unit;
}
[[nodiscard]] inline std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
    return round_down(value + unit - 1, unit);
}
[[nodiscard]] inline std::uint64_t address_of(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}
[[nodiscard]] inline void* pointer_to(std::uint64_t address) {
    return reinterpret_cast<void*>(address);
}

} // namespace fake_driver
