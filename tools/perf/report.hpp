// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rdmabuf/context.hpp>

#include "../memory.hpp"
#include "../text.hpp"
#include "checker.hpp"
#include "options.hpp"
#include "statistics.hpp"

namespace rdmabuf::tools::perf {

/// The device and the memory of a measurement.
struct Setting {
    std::string device;
    std::uint8_t port = 1;
    /// The GID of this end; empty if librdmacm chose the GID.
    std::optional<GidEntry> gid;
    Origin origin;
};

struct Result {
    /// The times that the initiator measured. The reports of the initiator and the responder
    /// contain the same times.
    Figures figures;
    /// The numbers of bytes that this process compared with the expected bytes.
    Checked checked;
};

/// Returns the result as a table. The last line is, for example, "checked 4096 bytes over dmabuf
/// from drm (/dev/dri/card0, vgem) on mlx5_0"; without --check, it begins with "not checked".
[[nodiscard]] std::string format_table(const Options& options, const Setting& setting,
                                       const Result& result, const TextStyle& style = {});

/// Returns the result as one line of a table with a line for each size.
/// @param first  true for the first line, which has the heading before it
[[nodiscard]] std::string format_row(const Options& options, const Setting& setting,
                                     const Result& result, bool first, const TextStyle& style = {});

/// Returns the result as one JSON object and a newline.
[[nodiscard]] std::string format_json(const Options& options, const Setting& setting,
                                      const Result& result);

} // namespace rdmabuf::tools::perf
