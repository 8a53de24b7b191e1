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

#include "control/faults.hpp"
#include "engine/engine.hpp"
#include "objects/device.hpp"
#include "objects/key_table.hpp"
#include "objects/qp_table.hpp"

namespace softverbs {

/// All that this process has of softverbs, under one lock: an entry point takes it and everything
/// below expects it held. What waits (for events) waits without it.
struct Process {
    std::mutex lock;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<Context*> contexts;          // that are open
    std::vector<Context*> orphaned_contexts; // closed before what was made with them
    KeyTable keys;
    QpTable qps;
    Faults faults;
    /// Lists have only our own devices.
    bool real_devices_hidden = false;
    softverbs_counters counters{};
    std::array<std::size_t, SOFTVERBS_KINDS> live{};
    unsigned violations = 0;
    unsigned unacknowledged_events = 0;
    /// Those of them that are a port's or a device's.
    unsigned unacknowledged_device_events = 0;
    /// The last so that it goes first: its thread uses the others.
    Engine engine;
};

/// The one there is. Made, with its devices, at the first call; wrong environment variables end the
/// process there with a text on stderr.
[[nodiscard]] Process& process();

/// The lock, for entry points.
class Guard {
  public:
    Guard() : lock_(process().lock) {}

  private:
    std::scoped_lock<std::mutex> lock_;
};

/// For calls that return null and set errno.
[[nodiscard]] std::nullptr_t fail(int error) noexcept;
/// For an object that is still in use: counts a violation, sets errno, and returns EBUSY.
[[nodiscard]] int busy() noexcept;

} // namespace softverbs
