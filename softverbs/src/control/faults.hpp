// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

/// The faults that a test has planned and that have not occurred yet. See softverbs.h.
class Faults {
  public:
    /// These functions return 0 or EINVAL.
    int fail_call(std::string_view verb, unsigned nth, int error);
    int fail_packet(softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
    int set(std::string_view text);
    int slow_down(unsigned delay_ms);
    [[nodiscard]] unsigned pending() const;
    void clear();

    /// Every entry point that can fail calls this function first, with its public name, such as
    /// "ibv_alloc_pd". Returns the errno to fail with, or 0.
    [[nodiscard]] int enter(std::string_view verb) {
        return calls_.empty() ? 0 : enter_slowly(verb);
    }
    /// Returns whether packet() may return a fault.
    [[nodiscard]] bool affects_packets() const { return !packets_.empty() || slow_ms_ != 0; }
    struct PacketFault {
        softverbs_packet_fault what;
        unsigned delay_ms;
    };
    /// Returns the fault for the next packet, or null if there is none. The engine calls this
    /// function before it sends each packet.
    [[nodiscard]] const PacketFault* packet() {
        return affects_packets() ? packet_slowly() : nullptr;
    }
    [[nodiscard]] bool dm_exhausted() const { return dm_exhausted_; }
    [[nodiscard]] bool dmabufs_unmappable() const { return dmabufs_unmappable_; }

  private:
    struct Call {
        std::string verb; // empty: any verb
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
    PacketFault current_{};
    bool dm_exhausted_ = false;
    bool dmabufs_unmappable_ = false;
    /// Delay of every packet in milliseconds; 0: no delay.
    unsigned slow_ms_ = 0;
};

} // namespace softverbs
