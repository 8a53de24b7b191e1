// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <variant>

#include "named.hpp"
#include "verb.hpp"

namespace pingpong {

enum class Mode : std::uint8_t {
    /// Waits for another process, and responds.
    listen,
    /// Goes to another process, and initiates.
    connect,
    /// Both ends in this process.
    loopback,
};

enum class MemoryType : std::uint8_t {
    host,
    cuda,
    habana,
    level_zero,
    neuron,
    rocm,
    udmabuf,
    dma_heap,
    drm,
    memfd,
    external,
    dm,
};
/// But for host and dm they are called after the exporter that makes them, or knows them.
inline constexpr auto memory_types = std::to_array<Named<MemoryType>>({
    {"host", MemoryType::host},
    {"cuda", MemoryType::cuda},
    {"habana", MemoryType::habana},
    {"level-zero", MemoryType::level_zero},
    {"neuron", MemoryType::neuron},
    {"rocm", MemoryType::rocm},
    {"udmabuf", MemoryType::udmabuf},
    {"dma-heap", MemoryType::dma_heap},
    {"drm", MemoryType::drm},
    {"memfd", MemoryType::memfd},
    {"external", MemoryType::external},
    {"dm", MemoryType::dm},
});
/// As on the command line: "dma-heap".
[[nodiscard]] const char* to_string(MemoryType type) noexcept;

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

    MemoryType memory = MemoryType::host;
    std::string heap = "system";
    std::string drm_node;
    std::string drm_driver;

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

/// The command line asks for something that cannot be; what() says what to do about it.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Text to print instead of running.
struct Help {
    std::string text;
};

/// @param arguments  without the program's name
/// @throws UsageError
[[nodiscard]] std::variant<Options, Help> parse_options(std::span<const char* const> arguments);

} // namespace pingpong
