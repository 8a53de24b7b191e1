// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cm/manager.hpp"

namespace softverbs::cm {

/// Implements rdma_set_option(). Returns 0 or an errno: EINVAL (the value has a wrong size, or the
/// state of the id does not permit the change), ENOSYS (the option is unknown).
[[nodiscard]] int set_option(Manager& manager, Id& id, std::uint32_t level, std::uint32_t option,
                             std::span<const std::byte> value);

} // namespace softverbs::cm
