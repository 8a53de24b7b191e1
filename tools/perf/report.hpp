// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rdmabuf/gid.hpp>

#include "../memory.hpp"
#include "checker.hpp"
#include "options.hpp"
#include "statistics.hpp"

namespace rdmabuf::tools::perf {

/// What was used for a run.
struct Setting {
    std::string device;
    std::uint8_t port = 1;
    /// None if librdmacm chose it.
    std::optional<GidEntry> gid;
    Origin origin;
};

struct Result {
    /// As measured by the initiator, at both ends.
    Figures figures;
    /// In this process; of both ends with --loopback.
    Checked checked;
};

/// A table. Its last line says what was checked, in what memory.
[[nodiscard]] std::string format_table(const Options& options, const Setting& setting,
                                       const Result& result);

/// One JSON object and a newline.
[[nodiscard]] std::string format_json(const Options& options, const Setting& setting,
                                      const Result& result);

} // namespace rdmabuf::tools::perf
