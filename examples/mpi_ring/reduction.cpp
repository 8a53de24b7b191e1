// SPDX-License-Identifier: BSD-3-Clause
#include "reduction.hpp"

#include <cstdint>
#include <cstring>

namespace mpi_ring {

namespace {

template <class T>
void add(std::span<const std::byte> numbers, std::span<std::byte> sums) {
    for (std::size_t at = 0; at < sums.size(); at += sizeof(T)) {
        T number;
        T sum;
        std::memcpy(&number, &numbers[at], sizeof number);
        std::memcpy(&sum, &sums[at], sizeof sum);
        sum += number;
        std::memcpy(&sums[at], &sum, sizeof sum);
    }
}

} // namespace

void add(NumberType type, std::span<const std::byte> numbers, std::span<std::byte> sums) {
    // Unsigned, so that they wrap.
    type == NumberType::float32 ? add<float>(numbers, sums) : add<std::uint64_t>(numbers, sums);
}

} // namespace mpi_ring
