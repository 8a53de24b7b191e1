// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace rdmabuf::simulation {

/// The seeds of the gate.
inline constexpr auto seeds =
    std::to_array<std::uint64_t>({1, 2, 3, 4, 5, 6, 7, 8, 18, 23, 24, 30, 56, 58, 70, 279, 358});

} // namespace rdmabuf::simulation
