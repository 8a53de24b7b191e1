// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "numbers.hpp"

namespace mpi_ring {

/// Adds numbers to those of @p sums, of the same length. By the CPU, which for a GPU's memory means
/// copies there and back: a program that computes on a GPU has a kernel of its own do this, on the
/// two addresses in GPU memory, and needs no more than that changed.
void add(NumberType type, std::span<const std::byte> numbers, std::span<std::byte> sums);

} // namespace mpi_ring
