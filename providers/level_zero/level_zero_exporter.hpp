// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/providers/level_zero.hpp>

#include "level_zero/level_zero_driver.hpp"

namespace rdmabuf::detail::level_zero {

/// Like make_level_zero_exporter(), with a loader other than that of the process, for tests.
/// @param loader  must outlive the exporter and its buffers
[[nodiscard]] std::shared_ptr<Allocator> make_exporter(ProcessDriver<Driver>& loader,
                                                       const LevelZeroOptions& options);

} // namespace rdmabuf::detail::level_zero
