// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/providers/level_zero.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// As make_level_zero_exporter(), with another loader than that of the process.
/// @param loader  has to outlive the exporter and all that it makes
[[nodiscard]] std::shared_ptr<Allocator> make_exporter(ProcessDriver<Driver>& loader,
                                                       const LevelZeroOptions& options);

} // namespace rdmabuf::detail::level_zero
