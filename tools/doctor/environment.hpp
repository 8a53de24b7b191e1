// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "condition.hpp"

namespace rdmabuf::tools::doctor {

/// Formats the variables with which UCX, NCCL and NVSHMEM use the NICs that are nearest to each
/// selected GPU, as lines of a shell with the reasons as comments.
[[nodiscard]] std::string format_environment(const Check& check);

} // namespace rdmabuf::tools::doctor
