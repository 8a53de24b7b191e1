// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "doctor/condition.hpp"

namespace rdmabuf::testing {

/// Checks one condition of `rdmabuf doctor` on a machine of the directory machines.
/// @param machine  the name of the description without ".txt"
/// @param id       the identifier of the condition, such as "C-31"
/// @param system   the queries of the running system; nullopt as for a recorded machine
std::vector<tools::doctor::Finding> check_condition(
    std::string_view machine, std::string_view id,
    std::optional<tools::doctor::SystemQueries> system, const tools::doctor::Options& options = {});

} // namespace rdmabuf::testing
