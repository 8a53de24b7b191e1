// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rdmabuf/gid.hpp>

#include "memory.hpp"
#include "options.hpp"
#include "run.hpp"

namespace pingpong {

/// What was used to get a result.
struct Setting {
    std::string device;
    std::uint8_t port = 1;
    /// Nothing where librdmacm has chosen it.
    std::optional<rdmabuf::GidEntry> gid;
    Origin origin;
};

/// A small table for people. The last line says what was validated, over what.
[[nodiscard]] std::string format_table(const Options& options, const Setting& setting,
                                       const Result& result);

/// One JSON object, and a newline.
[[nodiscard]] std::string format_json(const Options& options, const Setting& setting,
                                      const Result& result);

} // namespace pingpong
