// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>

#include "fabric/clock.hpp"
#include "fabric/link.hpp"
#include "fabric/report.hpp"

// Direct writes: one process, the writer, writes to memory of another process, the owner, without
// sending a message. The owner must have granted the access.
//
// Before a write, the writer increments Direction::writing to an odd number and checks that the
// grant (the permission of the owner) is usable. After the write, it increments Direction::writing
// again. To withdraw the grant, the owner marks the grant as unusable, and then waits until
// Direction::writing is even or has another value. These accesses are sequentially consistent.
// Therefore either the writer finds that the grant is unusable, or the owner finds an odd number
// and waits for the end of the write.

namespace softverbs::fabric {
namespace {

/// Maximum number of times that withdraw_grants() checks whether the other process has ended its
/// direct write to memory of this process. Most writes end during these checks.
constexpr unsigned spins = 1000;

/// If a direct write has not ended after this time, this process reports on stderr which process it
/// waits for, and repeats the report every 10 seconds. A direct write takes microseconds, but the
/// process that writes may be stopped.
constexpr std::uint64_t report_after_ns = 5 * second_ns;

constexpr bool is_writing(std::uint32_t number) noexcept {
    return number % 2 != 0;
}

std::size_t slot_for(std::uint64_t writer, std::uint64_t key) noexcept {
    const std::uint64_t mixed = (writer ^ key * 0x9e3779b97f4a7c15U) * 0xff51afd7ed558ccdU;
    return static_cast<std::size_t>(mixed >> 32U) % grant_slots;
}

} // namespace

bool Link::grant(const WriteGrant& grant) noexcept {
    if (state_ != State::open) {
        return false;
    }
    constexpr auto relaxed = std::memory_order_relaxed;
    GrantSlot& slot = grants_[slot_for(grant.writer, grant.key)];
    if (slot.usable.load(relaxed) == 1 && slot.writer.load(relaxed) == grant.writer &&
        slot.key.load(relaxed) == grant.key && slot.first.load(relaxed) == grant.first &&
        slot.length.load(relaxed) == grant.length && slot.address.load(relaxed) == grant.address) {
        return true;
    }
    slot.usable.store(0, std::memory_order_seq_cst);
    if (is_writing(incoming_.writing.load(std::memory_order_seq_cst))) {
        return false; // the other process may still be writing with the old grant
    }
    slot.writer.store(grant.writer, relaxed);
    slot.key.store(grant.key, relaxed);
    slot.first.store(grant.first, relaxed);
    slot.length.store(grant.length, relaxed);
    slot.address.store(grant.address, relaxed);
    slot.usable.store(1, std::memory_order_seq_cst);
    has_granted_ = true;
    return true;
}

void Link::withdraw_grants() noexcept {
    if (!has_granted_) {
        return;
    }
    has_granted_ = false;
    for (GrantSlot& slot : grants_) {
        slot.usable.store(0, std::memory_order_seq_cst);
    }
    for (unsigned count = 0; count < spins; ++count) {
        ending_write_ = incoming_.writing.load(std::memory_order_seq_cst);
        if (!is_writing(ending_write_)) {
            return;
        }
    }
    report_write_at_ = now_ns() + report_after_ns;
}

bool Link::write_in_progress() noexcept {
    if (!is_writing(ending_write_)) {
        return false;
    }
    if (incoming_.writing.load(std::memory_order_seq_cst) == ending_write_ &&
        state_ == State::open && !mailbox_.hung_up()) {
        if (now_ns() >= report_write_at_) {
            report_write_at_ = now_ns() + 2 * report_after_ns;
            report("process " + std::to_string(pid_) +
                   " is stopped in the middle of an RDMA write to memory of this process; this "
                   "process waits until it continues or ends");
        }
        return true;
    }
    ending_write_ = 0;
    return false;
}

bool Link::write_granted(std::uint64_t writer, std::uint64_t key, std::uint64_t address,
                         RecordParts parts) noexcept {
    if (!peer_memory_ || state_ != State::open || taken() != sent_) {
        return false;
    }
    const GrantSlot& slot = grants_to_[slot_for(writer, key)];
    if (slot.usable.load(std::memory_order_relaxed) != 1) {
        return false;
    }
    constexpr auto relaxed = std::memory_order_relaxed;
    outgoing_.writing.store(++direct_writes_, std::memory_order_seq_cst);
    bool written = false;
    if (slot.usable.load(std::memory_order_seq_cst) == 1 && slot.writer.load(relaxed) == writer &&
        slot.key.load(relaxed) == key) {
        const std::uint64_t offset = address - slot.first.load(relaxed);
        const std::uint64_t length = slot.length.load(relaxed);
        if (offset <= length && length_of(parts) <= length - offset) {
            written = peer_memory_.write(slot.address.load(relaxed) + offset, parts);
        }
    }
    outgoing_.writing.store(++direct_writes_, std::memory_order_seq_cst);
    return written;
}

} // namespace softverbs::fabric
