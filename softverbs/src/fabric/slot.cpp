// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/clock.hpp"
#include "fabric/random.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::fabric {
namespace {

unsigned some_slot(unsigned slots) noexcept {
    const unsigned fallback = static_cast<unsigned>(::getpid()) * 7919U;
    return random_number(fallback, GRND_NONBLOCK) % slots;
}

} // namespace

Slot::Slot(const Rendezvous& rendezvous, unsigned slots,
           const std::function<bool(unsigned)>& is_usable)
    : rendezvous_(rendezvous), owner_(::getpid()) {
    // Prefer slots below 256, because the program can later select the device profile "efa", whose
    // queue pair numbers contain only 8 bits of the slot.
    constexpr unsigned preferred = 256;
    const unsigned first = some_slot(std::min(slots, preferred));
    // Number of searches for a free slot. One search is not enough: sweep() of another process
    // locks the lock file of each ended process for a moment, so that its slot seems to be in use.
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
        for (unsigned step = 0; step < slots; ++step) {
            if (take((first + step) % slots, is_usable)) {
                return;
            }
        }
        pause_ns(1'000'000);
    }
    throw_error(ENOSPC, "softverbs has no free slot: processes use all " + std::to_string(slots) +
                            " slots in " + rendezvous.path() +
                            ", or other programs use their TCP ports; end some of them, or "
                            "set another SOFTVERBS_DIR or SOFTVERBS_PORT");
}

bool Slot::take(unsigned slot, const std::function<bool(unsigned)>& is_usable) {
    UniqueFd lock = rendezvous_.lock(slot, true);
    if (!lock) {
        return false;
    }
    if (!is_usable(slot)) {
        rendezvous_.remove(slot);
        return false;
    }
    socklen_t length = 0;
    const sockaddr_un address = rendezvous_.address(slot, length);
    // If the previous process in this slot was killed, its socket file still exists. Remove it.
    ::unlink(address.sun_path);
    UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener ||
        ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(listener.get(), SOMAXCONN) != 0) {
        const int error = errno;
        rendezvous_.remove(slot);
        throw_error(error, "softverbs cannot listen on the socket " +
                               std::string(address.sun_path) +
                               "; set SOFTVERBS_DIR to another directory");
    }
    number_ = slot;
    lock_ = std::move(lock);
    listener_ = std::move(listener);
    return true;
}

Slot::~Slot() {
    if (lock_ && mine()) {
        rendezvous_.remove(number_);
    }
}

bool Slot::mine() const noexcept {
    return ::getpid() == owner_;
}

void Slot::abandon() noexcept {
    listener_.reset();
    lock_.reset();
}

} // namespace softverbs::fabric
