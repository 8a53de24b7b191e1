// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "condition.hpp"

namespace rdmabuf::tools::doctor {

/// Returns shell lines that set the variables of UCX, NCCL and NVSHMEM, so that each selected GPU
/// uses its nearest NICs. Comments in the lines give the reasons.
[[nodiscard]] std::string format_environment(const Check& check);

} // namespace rdmabuf::tools::doctor
