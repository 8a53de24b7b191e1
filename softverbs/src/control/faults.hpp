// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

/// The faults that a test has planned and that have not happened yet. See softverbs.h.
class Faults {
  public:
    /// These return 0, or EINVAL.
    int fail_call(std::string_view verb, unsigned nth, int error);
    int fail_packet(softverbs_packet_fault fault, unsigned nth, unsigned delay_ms);
    int set(std::string_view text);
    int slow_down(unsigned delay_ms);
    [[nodiscard]] unsigned pending() const;
    void clear();

    /// Entry points that can fail call this first, with their public name, such as "ibv_alloc_pd".
    /// Returns the errno to fail with, or 0.
    [[nodiscard]] int enter(std::string_view verb) {
        return calls_.empty() ? 0 : enter_slowly(verb);
    }
    /// Whether packet() may return a fault.
    [[nodiscard]] bool affects_packets() const { return !packets_.empty() || slow_ms_ != 0; }
    struct PacketFault {
        softverbs_packet_fault what;
        unsigned delay_ms;
    };
    /// The engine calls this for each packet before it sends it. Returns the fault to apply to the
    /// packet; null: none.
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
    /// Every packet is delayed by this; 0: none is.
    unsigned slow_ms_ = 0;
};

} // namespace softverbs
