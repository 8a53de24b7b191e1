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

/// The planned faults that have not occurred yet. softverbs.h describes the kinds of faults.
class Faults {
  public:
    // These functions implement softverbs_fail_call(), softverbs_fail_packet(),
    // softverbs_set_faults() and softverbs_slow_down(). They return 0 or EINVAL.

    int fail_call(std::string_view verb, unsigned nth, int error);
    int fail_packet(softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
    /// Replaces the planned faults by those in @p text. Also returns ENODEV if @p text contains a
    /// fault of a device or port that does not exist.
    int set(std::string_view text, const std::vector<std::unique_ptr<Device>>& devices);
    int slow_down(unsigned delay_ms);
    /// Returns the faults of ports and devices that set() has parsed, and removes them from this
    /// object. The caller passes them to control::plan().
    [[nodiscard]] std::vector<DeviceFault> take_device_faults() {
        return std::exchange(device_faults_, {});
    }
    [[nodiscard]] unsigned pending() const;
    void clear();

    /// Counts a call of a verb for the planned faults. Returns the errno with which the call must
    /// fail, or 0. Each verb that can fail calls this function first, with its public name, such as
    /// "ibv_alloc_pd".
    [[nodiscard]] int enter(std::string_view verb) {
        return calls_.empty() ? 0 : enter_slowly(verb);
    }
    /// Returns false if no packet faults are planned and packets are not delayed. packet() then
    /// returns null.
    [[nodiscard]] bool affects_packets() const { return !packets_.empty() || slow_ms_ != 0; }
    struct PacketFault {
        softverbs_packet_fault what;
        unsigned delay_ms;
    };
    /// Returns the fault to apply to the next packet, or null. Must be called once for each packet
    /// that is sent.
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
    /// Delay of each packet in milliseconds; 0: packets are not delayed.
    unsigned slow_ms_ = 0;
};

} // namespace softverbs
