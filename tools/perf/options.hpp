// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "../options.hpp"

namespace rdmabuf::tools::perf {

/// The operation that is measured.
enum class Verb : std::uint8_t { send, write, write_imm, read, compare_swap, fetch_add };
/// Returns all verbs with their names on the command line.
[[nodiscard]] const std::vector<std::pair<std::string, Verb>>& verbs();
[[nodiscard]] const std::string& to_string(Verb verb);

/// Returns the types of queue pairs with their names on the command line.
[[nodiscard]] const std::vector<std::pair<std::string, QueuePairType>>& qp_types();

/// Returns true if the responder answers each transfer with a transfer of the same size. For the
/// other verbs, only the initiator posts requests.
[[nodiscard]] constexpr bool is_exchange(Verb verb) noexcept {
    return verb == Verb::send || verb == Verb::write || verb == Verb::write_imm;
}
/// Returns true for the atomic operations, which change 8 bytes.
[[nodiscard]] constexpr bool is_atomic(Verb verb) noexcept {
    return verb == Verb::compare_swap || verb == Verb::fetch_add;
}

/// Returns the access flags that the verb requires of the regions at both ends.
[[nodiscard]] Access access_for(Verb verb) noexcept;

/// The role of one end in a measurement: the initiator starts every transfer and measures its time,
/// and the responder answers.
enum class Role : std::uint8_t { initiator, responder };
[[nodiscard]] const char* to_string(Role role) noexcept;

/// The options of `rdmabuf perf`.
struct Options {
    /// Exactly one of loopback, listen and host must be set.
    bool loopback = false;
    bool listen = false;
    std::string host;

    /// True if librdmacm connects the queue pairs; false if their addresses are sent over TCP.
    bool rdma_cm = false;
    std::uint16_t tcp_port = 18520;
    /// The maximum time to wait for the other end.
    std::chrono::milliseconds timeout{30'000};

    DeviceOptions device;
    MemoryOptions memory;

    QueuePairType qp_type = QueuePairType::reliable_connected;
    Verb verb = Verb::send;
    /// The size of one transfer in bytes.
    std::uint64_t size = 4096;
    /// The number of measured transfers.
    std::uint32_t iterations = 1000;
    /// The number of transfers that are executed before the measured transfers.
    std::uint32_t warmup = 100;
    /// The maximum number of transfers in flight in each direction.
    std::uint32_t depth = 1;
    /// True if every byte that arrives is compared with the expected value.
    bool check = false;
    bool json = false;
    /// True if each power of two below `size` is measured before `size`.
    bool sweep = false;

    [[nodiscard]] Role role() const noexcept { return listen ? Role::responder : Role::initiator; }
    /// Returns the name of the method that connects the ends: "loopback", "tcp" or "rdma_cm".
    [[nodiscard]] const char* connection() const noexcept {
        return loopback ? "loopback" : rdma_cm ? "rdma_cm" : "tcp";
    }
    [[nodiscard]] std::uint64_t transfers() const noexcept {
        return std::uint64_t{warmup} + iterations;
    }
};

/// Checks the options, and sets the defaults that depend on other options.
/// @param size_given    true if --size is on the command line
/// @param warmup_given  true if --warmup is on the command line
/// @throws UsageError if options contradict each other
void complete(Options& options, bool size_given, bool warmup_given);

/// Connects the initiator and the responder, executes the transfers, and prints the results on
/// stdout.
/// @throws UsageError if an option is not supported, CheckError if received data is wrong, Error if
///         a call fails
void run(const Options& options);

} // namespace rdmabuf::tools::perf
