// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/providers/level_zero.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// make_level_zero_exporter() with a loader of one's own.
/// @param driver  alive as long as the exporter and all that is made by it
[[nodiscard]] std::shared_ptr<Allocator> make_exporter(const OrRefusal<Driver>& driver,
                                                       const LevelZeroOptions& options);

} // namespace rdmabuf::detail::level_zero
