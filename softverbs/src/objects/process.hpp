// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <softverbs/softverbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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

/// The state of softverbs in this process. Process::lock protects the state. Verbs take this lock;
/// the functions that they call must be called with the lock held, except as noted. Functions
/// that wait for events release the lock while they wait.
struct Process {
    Lock lock;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Context*> contexts;          // open contexts
    std::vector<Context*> orphaned_contexts; // closed before their objects were destroyed
    /// Settings of the network between hosts. The network is disabled if network.addresses is
    /// empty.
    fabric::NetworkSettings network;
    KeyTable keys;
    QpTable qps;
    Faults faults;
    Disorder disorder;
    /// Duration of each registration in nanoseconds; 0: registrations are not delayed. Constant
    /// after the Process object has been created.
    std::uint64_t registration_delay_ns = 0;
    /// Whether ibv_get_device_list() omits real devices.
    bool real_devices_hidden = false;
    softverbs_counters counters{};
    std::array<std::size_t, SOFTVERBS_KINDS> live{};
    unsigned violations = 0;
    unsigned unacknowledged_events = 0;
    /// Number of asynchronous events of ports and devices that the program has received and not
    /// acknowledged. unacknowledged_events includes them.
    unsigned unacknowledged_device_events = 0;
    /// Returns whether SOFTVERBS_DISORDER is enabled, or planned faults affect packets. If so, the
    /// engine does not send with its fast paths.
    [[nodiscard]] bool disturbs_packets() const noexcept {
        return faults.affects_packets() || disorder.any();
    }
    Engine engine;
};

/// Creates the Process object and its devices, if they do not exist. If an environment variable is
/// invalid, ends the process with a message on stderr.
[[nodiscard]] Process& make_process();
inline std::atomic<Process*> made_process = nullptr;
/// Returns the only Process object. Creates it in the first call.
[[nodiscard]] inline Process& process() {
    Process* const made = made_process.load(std::memory_order_acquire);
    return made != nullptr ? *made : make_process();
}

/// Counts a call of a verb for the planned faults. Returns the error with which the verb must fail
/// before it does anything: the errno of an injected fault (for example one from SOFTVERBS_FAULTS),
/// or EIO if the device has failed. Returns 0 if the verb can proceed.
[[nodiscard]] inline int enter(std::string_view verb, const Context& context) {
    const int planned = process().faults.enter(verb);
    return planned == 0 && context.dead ? EIO : planned;
}

/// Counts an object that a verb has created (@p change is 1) or destroyed (-1).
inline void count(Context& context, softverbs_kind kind, int change) {
    context.users += static_cast<unsigned>(change);
    process().live[kind] += static_cast<std::size_t>(change);
}
/// Returns whether the process may create another object of this kind.
/// @param most  the limit of the device
[[nodiscard]] inline bool may_create(softverbs_kind kind, int most) {
    return process().live[kind] < static_cast<std::size_t>(most);
}

/// Holds Process::lock while the object exists. Most verbs create such an object.
class Guard {
  public:
    Guard() : lock_(process().lock) {}

  private:
    std::scoped_lock<Lock> lock_;
};

/// Releases Process::lock while the object exists. Used for waits, for slow system calls, and for C
/// library functions that the program may intercept in order to call verbs. Other threads can call
/// verbs during this time. Therefore the caller must increment the number of users of each object
/// that it needs afterwards, so that the object is not destroyed.
class Unlocked {
  public:
    Unlocked() { process().lock.unlock(); }
    Unlocked(const Unlocked&) = delete;
    Unlocked& operator=(const Unlocked&) = delete;
    ~Unlocked() { process().lock.lock(); }
};

/// Sets errno. Returns null.
[[nodiscard]] std::nullptr_t fail(int error) noexcept;
/// Counts a violation (an error of the program, see softverbs_violations()), sets errno to EBUSY,
/// and returns EBUSY. Called if the object to be destroyed is in use.
[[nodiscard]] int busy() noexcept;

} // namespace softverbs
