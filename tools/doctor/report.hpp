// SPDX-License-Identifier: BSD-3-Clause
#pragma once

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

/// Everything that `rdmabuf doctor` has found.
struct Report {
    std::vector<Section> sections = {};
    std::vector<Proof> proofs = {};
    /// The reason why no proofs (test transfers) were made; empty if proofs were made.
    std::string no_proofs = {};
    /// True if only proofs with a dma-buf count, see Options::require_dmabuf.
    bool require_dmabuf = false;
};

/// Returns the exit status. 0: the test transfers (proof) of at least one kind of memory other than
/// host memory succeeded in both directions; memory on the NIC counts, unless
/// Report::require_dmabuf is true. 1: no such proof succeeded, and a proof or a check with
/// Severity::blocks failed. 2: no such proof succeeded, and no failure was found.
[[nodiscard]] int exit_status(const Report& report) noexcept;

/// Converts the proofs to findings of condition C-55, and of C-36 if the driver moved the memory.
[[nodiscard]] std::vector<Finding> findings_of(const std::vector<Proof>& proofs);

[[nodiscard]] std::string format_section(const Section& section, const TextStyle& style);
/// Formats the matrix of memory and NICs, the details of each proof, and the result.
[[nodiscard]] std::string format_result(const Report& report, const TextStyle& style);
/// Returns the report as a JSON object, which doctor.schema.json describes.
[[nodiscard]] Json to_json(const Report& report);
/// Formats the commands that correct the failed checks as a shell script.
[[nodiscard]] std::string format_script(const Report& report);

} // namespace rdmabuf::tools::doctor
