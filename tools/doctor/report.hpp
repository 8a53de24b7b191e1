// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../json.hpp"
#include "../text.hpp"
#include "finding.hpp"
#include "proof.hpp"

namespace rdmabuf::tools::doctor {

/// The findings of one group of conditions.
struct Section {
    std::string title;
    std::vector<Finding> findings;
};

/// A pair of a selected GPU and a selected NIC. The report covers all such pairs.
struct Pair {
    /// The PCI address of the GPU; empty if PCI lists no GPU.
    std::string gpu = {};
    /// The RDMA device; empty if there is none.
    std::string nic = {};
    /// The PCI vendor ID of the GPU.
    std::uint32_t vendor = 0;
    /// True if the GPU needs no proof: see Gpu::is_vga. False if the option --gpu selects the GPU.
    bool is_optional = false;
    /// The names by which the subjects of findings refer to this pair: those of the GPU, its
    /// driver, the NIC, and the PCI bridges between GPU and NIC.
    std::vector<std::string> names = {};
    /// True if the path was checked: the pair is one of Check::pairs().
    bool checked = true;
};

/// Everything that `rdmabuf doctor` has found.
struct Report {
    std::vector<Section> sections = {};
    std::vector<Proof> proofs = {};
    /// The reason why no proofs (test transfers) were made; empty if proofs were made.
    std::string no_proofs = {};
    /// True if only proofs with a dma-buf count, see Options::require_dmabuf.
    bool require_dmabuf = false;
    /// The PCI address of the GPU that the option --gpu selects; empty without this option.
    std::string selected_gpu = {};
    /// All pairs of selected GPUs and NICs. The default is one pair that every finding concerns.
    std::vector<Pair> pairs{1};
    /// The loaded module that registers memory of NVIDIA GPUs without dma-bufs; empty if there is
    /// none.
    std::string peer_memory = {};
};

/// Returns true if the report has pairs with a GPU that needs a proof.
[[nodiscard]] bool has_gpu(const Report& report) noexcept;
/// Returns true if the proof alone leads to exit status 0: it succeeded, and its memory is on a GPU
/// or, if has_gpu() is false, is not ordinary host memory. If Report::require_dmabuf is true, the
/// memory must also be registered as a dma-buf.
[[nodiscard]] bool is_sufficient(const Report& report, const Proof& proof) noexcept;
/// Returns true if the finding concerns the pair. It does not if its subject names a GPU, a NIC or
/// a bridge of other pairs only, or if it concerns only GPUs of another vendor.
[[nodiscard]] bool concerns(const Report& report, const Finding& finding,
                            const Pair& pair) noexcept;
/// Returns true if the condition only prevents the registration of dma-bufs, and a loaded peer
/// memory module can still register the memory of the pair.
[[nodiscard]] bool leaves_peer_memory(const Report& report, const Finding& finding,
                                      const Pair& pair) noexcept;
/// Returns true if the failed finding prevents RDMA on the memory of the pair.
[[nodiscard]] bool blocks(const Report& report, const Finding& finding, const Pair& pair) noexcept;
/// Returns true if the proof concerns the pair: it used the NIC and memory of the GPU. If the pair
/// has no GPU, memory of any kind counts.
[[nodiscard]] bool is_of(const Proof& proof, const Pair& pair) noexcept;

/// Returns the exit status. 0: a proof (test transfers) succeeded and is_sufficient(). 1: there is
/// no such proof, and each pair has a failed proof, or a failed condition that blocks() it. 2:
/// otherwise.
[[nodiscard]] int exit_status(const Report& report) noexcept;
/// Returns the result in words, which begins with "Result: ".
[[nodiscard]] std::string describe_result(const Report& report);
/// Returns the failed condition that most likely explains exit status 1; nullptr if there is none,
/// or if the exit status is not 1.
[[nodiscard]] const Finding* likeliest_cause(const Report& report);

/// Converts the proofs to findings of condition C-55, and of C-36 if the driver moved the memory.
[[nodiscard]] std::vector<Finding> findings_of(const std::vector<Proof>& proofs);

[[nodiscard]] std::string format_section(const Section& section, const TextStyle& style);
/// Formats the matrix of memory and NICs, the details of each proof, and the result.
[[nodiscard]] std::string format_result(const Report& report, const TextStyle& style);
/// Returns the report as a JSON object, which doctor.schema.json describes.
/// @param only_failed  true to leave out the findings and the proofs that did not fail
[[nodiscard]] Json to_json(const Report& report, bool only_failed = false);
/// Formats the commands that correct the failed checks as a shell script.
[[nodiscard]] std::string format_script(const Report& report);

} // namespace rdmabuf::tools::doctor
