// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rdmabuf::tools::doctor {

/// The effect of a condition that is not met.
enum class Severity : std::uint8_t {
    /// RDMA fails, at least for some allocations, ports or operations.
    blocks,
    /// The NIC cannot access the memory of the GPU directly, or data is lost.
    no_peer_to_peer,
    /// Transfers are slower than the hardware permits.
    slows,
    /// A failure only prevents operations that the GPU itself posts to the NIC.
    gpu_initiated,
    /// The condition has no effect by itself, but explains other findings.
    information,
};
/// Returns "blocks", "no-peer-to-peer", "slows", "gpu-initiated" or "information".
[[nodiscard]] const char* to_string(Severity severity) noexcept;

enum class Verdict : std::uint8_t { pass, fail, unknown };
[[nodiscard]] const char* to_string(Verdict verdict) noexcept;

/// The consequence and the remedy of a Finding whose verdict is Verdict::fail or Verdict::unknown.
struct Advice {
    /// The consequence of the failure.
    std::string means = {};
    /// The instruction that corrects the failure or makes the condition known.
    std::string remedy = {};
    /// The shell command of the remedy; empty if no single command applies the remedy.
    std::string command = {};
};

/// The result of one condition for one subject.
struct Finding {
    /// The identifier of the condition, such as "C-31".
    std::string id;
    Severity severity = Severity::information;
    /// The condition as a short statement, such as "an RDMA device exists".
    std::string condition;
    /// The devices, files or memory that the condition concerns; empty for the whole machine.
    std::vector<std::string> subject = {};
    Verdict verdict = Verdict::unknown;
    /// The value that was read. For Verdict::unknown, the reason why it could not be read.
    std::string found = {};
    Advice advice = {};
    /// The document or source file that defines the condition.
    std::string source = {};
    /// If not 0, the condition concerns only GPUs with this PCI vendor ID.
    std::uint32_t vendor = 0;
    /// True if a failure prevents only the registration of dma-bufs: a peer memory module can still
    /// register the memory.
    bool only_dmabufs = false;
};

} // namespace rdmabuf::tools::doctor
