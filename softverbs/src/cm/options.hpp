// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cm/manager.hpp"

namespace softverbs::cm {

/// Sets an option of an id. Returns 0, or EINVAL (the value has a wrong size, or the state of the
/// id does not permit the change), ENOSYS (no such option).
[[nodiscard]] int set_option(Manager& manager, Id& id, std::uint32_t level, std::uint32_t option,
                             std::span<const std::byte> value);

} // namespace softverbs::cm
