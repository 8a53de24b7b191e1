// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "condition.hpp"

namespace rdmabuf::tools::doctor {

/// Returns shell lines for each selected GPU. They set the variables of UCX, NCCL and NVSHMEM for a
/// process that uses only this GPU, with its nearest NICs. Comments give the reasons.
[[nodiscard]] std::string format_environment(const Check& check);

} // namespace rdmabuf::tools::doctor
