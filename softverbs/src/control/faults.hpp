// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/device_faults.hpp"

namespace softverbs {

struct Device;

/// The planned faults: those that a test injects and that have not occurred yet. softverbs.h
/// describes the kinds of faults.
class Faults {
  public:
    // fail_call(), fail_packet(), set() and slow_down() implement the functions of softverbs.h with
    // similar names. Except set(), they return 0 or EINVAL.

    int fail_call(std::string_view verb, unsigned nth, int error);
    int fail_packet(softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
    /// Replaces the planned faults by those in @p text. Returns 0, EINVAL, or ENODEV if @p text
    /// names a device or port that does not exist.
    int set(std::string_view text, const std::vector<std::unique_ptr<Device>>& devices);
    int slow_down(unsigned delay_ms);
    /// Returns the planned faults of ports and devices that set() has parsed, and removes them from
    /// this object. The caller must pass them to control::plan().
    [[nodiscard]] std::vector<DeviceFault> take_device_faults() {
        return std::exchange(device_faults_, {});
    }
    [[nodiscard]] unsigned pending() const;
    void clear();

    /// Called first by each verb that can fail. @p verb is its public name, such as "ibv_alloc_pd".
    /// Counts this call for the planned faults of the verb. Returns the errno with which the verb
    /// must fail, or 0.
    [[nodiscard]] int enter(std::string_view verb) {
        return calls_.empty() ? 0 : enter_slowly(verb);
    }
    /// Returns whether packet() can return a fault: faults of packets are planned, or all packets
    /// are delayed.
    [[nodiscard]] bool affects_packets() const { return !packets_.empty() || slow_ms_ != 0; }
    struct PacketFault {
        softverbs_packet_fault what;
        unsigned delay_ms;
    };
    /// Returns the planned fault to apply to the next packet that this process sends, or null. Must
    /// be called once for each such packet; the result is valid until the next call.
    [[nodiscard]] const PacketFault* packet() {
        return affects_packets() ? packet_slowly() : nullptr;
    }
    [[nodiscard]] bool dm_exhausted() const { return dm_exhausted_; }
    [[nodiscard]] bool dmabufs_unmappable() const { return dmabufs_unmappable_; }

  private:
    struct Call {
        std::string verb; // empty: any verb that destroys no object
        unsigned left;
        int error;
    };
    struct Packet {
        PacketFault fault;
        unsigned left;
    };
    int enter_slowly(std::string_view verb);
    const PacketFault* packet_slowly();

    std::vector<Call> calls_;
    std::vector<Packet> packets_;
    std::vector<DeviceFault> device_faults_;
    PacketFault current_{};
    bool dm_exhausted_ = false;
    bool dmabufs_unmappable_ = false;
    /// Delay in milliseconds of each packet that this process sends; 0: packets are not delayed.
    unsigned slow_ms_ = 0;
};

} // namespace softverbs
