// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/disorder.hpp"
#include "control/faults.hpp"
#include "engine/engine.hpp"
#include "fabric/network_settings.hpp"
#include "objects/device.hpp"
#include "objects/key_table.hpp"
#include "objects/lock.hpp"
#include "objects/qp_table.hpp"

namespace softverbs {

/// The state of softverbs in this process. One lock protects all of it: entry points take the lock,
/// and the functions that they call expect it to be held. A function that waits for events releases
/// the lock first.
struct Process {
    Lock lock;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Context*> contexts;          // open contexts
    std::vector<Context*> orphaned_contexts; // closed before their objects were destroyed
    /// Settings of the network between hosts. Without addresses, only processes on this host can be
    /// reached.
    fabric::NetworkSettings network;
    KeyTable keys;
    QpTable qps;
    Faults faults;
    Disorder disorder;
    /// ibv_get_device_list() omits the devices of the real libibverbs.
    bool real_devices_hidden = false;
    softverbs_counters counters{};
    std::array<std::size_t, SOFTVERBS_KINDS> live{};
    unsigned violations = 0;
    unsigned unacknowledged_events = 0;
    /// The part of unacknowledged_events that belongs to ports and devices.
    unsigned unacknowledged_device_events = 0;
    /// Returns whether planned faults or SOFTVERBS_DISORDER affect packets. The fast paths of the
    /// engine cannot be used then.
    [[nodiscard]] bool disturbs_packets() const noexcept {
        return faults.affects_packets() || disorder.any();
    }
    /// Last member, so that it is destroyed first: its thread uses the other members.
    Engine engine;
};

/// Creates the only Process object and its devices, unless they exist. An invalid environment
/// variable ends the process then, with a message on stderr.
[[nodiscard]] Process& make_process();
inline std::atomic<Process*> made_process = nullptr;
/// The only Process object. The first call creates it.
[[nodiscard]] inline Process& process() {
    Process* const made = made_process.load(std::memory_order_acquire);
    return made != nullptr ? *made : make_process();
}

/// Holds Process::lock in an entry point.
class Guard {
  public:
    Guard() : lock_(process().lock) {}

  private:
    std::scoped_lock<Lock> lock_;
};

/// Releases Process::lock while the object exists. Entry points use it during slow system calls,
/// and during calls that the program may intercept and call verbs from. Another thread can call
/// verbs in the meantime, so the caller must first increment the reference count (users) of each
/// object that it uses afterwards.
class Unlocked {
  public:
    Unlocked() { process().lock.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { process().lock.lock(); }
};

/// Sets errno and returns null.
[[nodiscard]] std::nullptr_t fail(int error) noexcept;
/// For an object that is still in use: counts a violation, sets errno, and returns EBUSY.
[[nodiscard]] int busy() noexcept;

} // namespace softverbs
