// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <rdmabuf/context.hpp>

namespace examples {

/// @param name  empty for the first with an active port
/// @throws UsageError for one that is not there, rdmabuf::Error
[[nodiscard]] rdmabuf::Context open_device(const std::string& name);

} // namespace examples
