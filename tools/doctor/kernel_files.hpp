// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "machine.hpp"

namespace rdmabuf::tools::doctor {

/// Decompresses a gzip file. Returns nullopt if the file is truncated or invalid, or if the result
/// is longer than about 4 MiB.
[[nodiscard]] std::optional<std::string> decompress(std::string_view compressed);

/// An option of the kernel's configuration.
struct KernelOption {
    enum class State : std::uint8_t { on, off, unknown };
    State state = State::unknown;
    /// The configuration file that was read, or the reason why the state is not known.
    std::string where;
};
/// Finds an option in the configuration of the running kernel: in /proc/config.gz, or else in the
/// configuration file of a distribution.
[[nodiscard]] KernelOption read_kernel_option(const Machine& machine, const std::string& name);

/// The log of the kernel, or the reason why it cannot be read.
struct KernelLog {
    std::optional<std::string> text;
    std::string reason;
};
/// The path, below Machine::root(), of the file with the kernel log of a recorded machine (see
/// Machine::recorded()).
inline constexpr const char* recorded_kernel_log = "/var/log/dmesg";
/// Reads the log of the kernel. For a recorded machine, reads the file recorded_kernel_log instead.
[[nodiscard]] KernelLog read_kernel_log(const Machine& machine);

/// Returns the lines of the kernel log that conditions search for. Dumps contain only these lines.
[[nodiscard]] std::string examined_lines(std::string_view log);

/// Returns the size of a page in bytes; nullopt if /proc/self/smaps does not contain it.
[[nodiscard]] std::optional<std::uint64_t> read_page_size(const Machine& machine);

// Texts that conditions search for in the kernel log.
inline constexpr std::string_view log_no_whitelist = "Host bridge not in P2PDMA whitelist";
inline constexpr std::string_view log_acs_redirect = "ACS redirect is set between";
inline constexpr std::string_view log_no_peer_to_peer = "cannot be used for peer-to-peer DMA";
inline constexpr std::string_view log_refused_key = "CREATE_MKEY";

/// The kernel modules of NVIDIA, as /proc/driver/nvidia/version names them.
enum class NvidiaModules : std::uint8_t { none, proprietary, open };
[[nodiscard]] NvidiaModules read_nvidia_modules(const Machine& machine);
/// Returns the name of the loaded peer memory module, such as "nvidia_peermem", which registers
/// memory of NVIDIA GPUs without dma-bufs; empty if none is loaded.
[[nodiscard]] std::string peer_memory_module(const Machine& machine);

} // namespace rdmabuf::tools::doctor
