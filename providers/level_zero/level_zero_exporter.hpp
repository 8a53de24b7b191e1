// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/providers/level_zero.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// Returns an exporter as make_level_zero_exporter() does, but with @p loader in place of the
/// loader of the process. Only tests use this function.
/// @param loader  must outlive the exporter and its buffers
[[nodiscard]] std::shared_ptr<Allocator> make_exporter(ProcessDriver<Driver>& loader,
                                                       const LevelZeroOptions& options);

} // namespace rdmabuf::detail::level_zero
