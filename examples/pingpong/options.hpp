// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "support/memory_choice.hpp"
#include "support/named.hpp"
#include "support/usage.hpp"
#include "verb.hpp"

namespace pingpong {

using examples::Help;
using examples::MemoryType; // NOLINT(misc-unused-using-decls): for those who include this
using examples::Named;
using examples::UsageError; // NOLINT(misc-unused-using-decls): the same

enum class Mode : std::uint8_t {
    /// Waits for another process, and responds.
    listen,
    /// Goes to another process, and initiates.
    connect,
    /// Both ends in this process.
    loopback,
};

/// How two processes find each other.
enum class Bootstrap : std::uint8_t { tcp, rdmacm };
inline constexpr std::array<Named<Bootstrap>, 2> bootstraps{{
    {"tcp", Bootstrap::tcp},
    {"rdmacm", Bootstrap::rdmacm},
}};
[[nodiscard]] const char* to_string(Bootstrap bootstrap) noexcept;

struct Options {
    Mode mode = Mode::loopback;
    /// Where to connect to.
    std::string host;
    Bootstrap bootstrap = Bootstrap::tcp;
    std::uint16_t tcp_port = 18520;

    examples::MemoryChoice memory;

    /// Empty for the first that works.
    std::string device;
    std::uint8_t port = 1;
    std::optional<std::uint8_t> gid_index;

    Verb verb = Verb::send;
    /// In bytes.
    std::uint64_t size = 4096;
    std::uint32_t iterations = 1000;
    /// Transfers before those that are counted.
    std::uint32_t warmup = 100;
    bool validate = false;
    bool json = false;
    /// The longest wait for the peer, at any point.
    std::chrono::milliseconds timeout{30'000};

    [[nodiscard]] Role role() const noexcept {
        return mode == Mode::listen ? Role::responder : Role::initiator;
    }
};

/// @param arguments  without the program's name
/// @throws UsageError
[[nodiscard]] std::variant<Options, Help> parse_options(std::span<const char* const> arguments);

} // namespace pingpong
