// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>
#include <time.h>

#include <cstdint>

#include "fabric/link.hpp"

// Direct writes: one process writes to memory of another process with process_vm_writev(2), without
// a record. The other process is the owner of the memory. It must have granted the access.
//
// The writer sets Direction::writing, checks that the grant is usable, writes, and clears
// Direction::writing. The owner sets the grant to unusable, and then waits until Direction::writing
// is clear. These accesses are sequentially consistent. So either the writer finds the grant
// unusable, or the owner finds Direction::writing set and waits for the end of the write.

namespace softverbs::fabric {
namespace {

/// Maximum time for which withdraw_grants() waits for the end of a write. The writer may be a
/// stopped process.
constexpr std::int64_t longest_wait_ns = 1'000'000'000;
constexpr unsigned spins = 100;

std::size_t slot_for(std::uint64_t writer, std::uint64_t key) noexcept {
    const std::uint64_t mixed = (writer ^ key * 0x9e3779b97f4a7c15U) * 0xff51afd7ed558ccdU;
    return static_cast<std::size_t>(mixed >> 32U) % grant_slots;
}

std::int64_t now_ns() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

} // namespace

bool Link::grant(const WriteGrant& grant) noexcept {
    if (!trusts_writer_ || state_ != State::open) {
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
    if (incoming_.writing.load(std::memory_order_seq_cst) != 0) {
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
    const std::int64_t limit = now_ns() + longest_wait_ns;
    for (unsigned count = 1; incoming_.writing.load(std::memory_order_seq_cst) != 0; ++count) {
        if (count % spins != 0) {
            continue;
        }
        if (state_ != State::open || mailbox_.hung_up()) {
            return;
        }
        if (now_ns() > limit) {
            trusts_writer_ = false;
            return;
        }
        ::sched_yield();
    }
}

bool Link::write_granted(std::uint64_t writer, std::uint64_t key, std::uint64_t address,
                         std::span<const std::byte> bytes) noexcept {
    if (!can_pull_ || state_ != State::open || taken() != sent_) {
        return false;
    }
    const GrantSlot& slot = grants_to_[slot_for(writer, key)];
    if (slot.usable.load(std::memory_order_relaxed) != 1 || mailbox_.hung_up()) {
        return false;
    }
    constexpr auto relaxed = std::memory_order_relaxed;
    outgoing_.writing.store(1, std::memory_order_seq_cst);
    bool written = false;
    if (slot.usable.load(std::memory_order_seq_cst) == 1 && slot.writer.load(relaxed) == writer &&
        slot.key.load(relaxed) == key) {
        const std::uint64_t offset = address - slot.first.load(relaxed);
        const std::uint64_t length = slot.length.load(relaxed);
        if (offset <= length && bytes.size() <= length - offset) {
            written = write_process(pid_, slot.address.load(relaxed) + offset, bytes);
        }
    }
    outgoing_.writing.store(0, std::memory_order_seq_cst);
    return written;
}

} // namespace softverbs::fabric
