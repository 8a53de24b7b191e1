// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/access.hpp>
#include <rdmabuf/queue_pair_address.hpp>

#include "../options.hpp"

namespace rdmabuf::tools::perf {

/// The operation that is measured.
enum class Verb : std::uint8_t { send, write, write_imm, read, compare_swap, fetch_add };
/// The names on the command line.
[[nodiscard]] const std::vector<std::pair<std::string, Verb>>& verbs();
[[nodiscard]] const std::string& to_string(Verb verb);

/// The types of queue pairs, with their names on the command line.
[[nodiscard]] const std::vector<std::pair<std::string, QueuePairType>>& qp_types();

/// Whether each transfer goes to the responder and another one of the same size comes back. With
/// the other verbs the initiator alone posts requests, and the responder's program does nothing.
[[nodiscard]] constexpr bool is_exchange(Verb verb) noexcept {
    return verb == Verb::send || verb == Verb::write || verb == Verb::write_imm;
}
/// Whether the operation works on 8 bytes.
[[nodiscard]] constexpr bool is_atomic(Verb verb) noexcept {
    return verb == Verb::compare_swap || verb == Verb::fetch_add;
}

/// The access that the regions of both ends need for a verb, and no more.
[[nodiscard]] Access access_for(Verb verb) noexcept;

/// The initiator starts every transfer and measures it; the responder answers.
enum class Role : std::uint8_t { initiator, responder };
[[nodiscard]] const char* to_string(Role role) noexcept;

/// The options of `rdmabuf perf`.
struct Options {
    /// One of these three is set.
    bool loopback = false;
    bool listen = false;
    std::string host;

    /// Connect the queue pairs by librdmacm, not by the TCP connection.
    bool rdma_cm = false;
    std::uint16_t tcp_port = 18520;
    /// The longest time without a sign of the other end.
    std::chrono::milliseconds timeout{30'000};

    DeviceOptions device;
    MemoryOptions memory;

    QueuePairType qp_type = QueuePairType::reliable_connected;
    Verb verb = Verb::send;
    /// Bytes of one transfer.
    std::uint64_t size = 4096;
    /// Transfers that are measured, and transfers before them that are not.
    std::uint32_t iterations = 1000;
    std::uint32_t warmup = 100;
    /// Transfers in flight in each direction.
    std::uint32_t depth = 1;
    /// Compare every byte that arrives.
    bool check = false;
    bool json = false;

    [[nodiscard]] Role role() const noexcept { return listen ? Role::responder : Role::initiator; }
    /// "loopback", "tcp" or "rdma_cm".
    [[nodiscard]] const char* connection() const noexcept {
        return loopback ? "loopback" : rdma_cm ? "rdma_cm" : "tcp";
    }
    [[nodiscard]] std::uint64_t transfers() const noexcept {
        return std::uint64_t{warmup} + iterations;
    }
};

/// Sets the defaults that depend on other options.
/// @param size_given    whether --size was on the command line
/// @param warmup_given  whether --warmup was
/// @throws UsageError for options that contradict each other
void complete(Options& options, bool size_given, bool warmup_given);

/// Connects, transfers, and prints the figures on stdout.
/// @throws UsageError, CheckError, Error
void run(const Options& options);

} // namespace rdmabuf::tools::perf
