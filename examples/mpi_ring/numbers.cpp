// SPDX-License-Identifier: BSD-3-Clause
#include "numbers.hpp"

#include <cstring>

namespace mpi_ring {

namespace {

// splitmix64: bits that depend on all bits.
std::uint64_t mixed(std::uint64_t bits) noexcept {
    bits += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111eb;
    return bits ^ (bits >> 31U);
}

// What a rank has at first. Unsigned in place of int64: sums have to wrap.
template <class T>
T number_at(int rank, std::uint64_t index, std::uint32_t turn) noexcept;

template <>
std::uint64_t number_at(int rank, std::uint64_t index, std::uint32_t turn) noexcept {
    return mixed(index + mixed((std::uint64_t{turn} << 32U) + static_cast<std::uint64_t>(rank)));
}
template <>
float number_at(int rank, std::uint64_t index, std::uint32_t turn) noexcept {
    const std::uint64_t below = number_at<std::uint64_t>(rank, index, turn) % 2001;
    return static_cast<float>(below) - 1000;
}

template <class Work>
auto with_type(NumberType type, const Work& work) {
    return type == NumberType::float32 ? work(float{}) : work(std::uint64_t{});
}

// Compares each number with what @p expected says of its index.
template <class T, class Expected>
std::string find_wrong(std::span<const std::byte> numbers, const Expected& expected) {
    for (std::size_t i = 0; i < numbers.size() / sizeof(T); ++i) {
        T found;
        std::memcpy(&found, &numbers[i * sizeof found], sizeof found);
        if (const T right = expected(i); found != right) {
            return "number " + std::to_string(i) + " is " + std::to_string(found) + " and not " +
                   std::to_string(right);
        }
    }
    return {};
}

} // namespace

const char* to_string(NumberType type) noexcept {
    return examples::name_of<NumberType>(type, number_types);
}

std::size_t size_of(NumberType type) noexcept {
    return type == NumberType::float32 ? sizeof(float) : sizeof(std::int64_t);
}

void fill(NumberType type, std::span<std::byte> numbers, int rank, std::uint32_t turn) {
    with_type(type, [&]<class T>(T number) {
        for (std::size_t i = 0; i < numbers.size() / sizeof number; ++i) {
            number = number_at<T>(rank, i, turn);
            std::memcpy(&numbers[i * sizeof number], &number, sizeof number);
        }
    });
}

std::string find_wrong_sum(NumberType type, std::span<const std::byte> numbers, int ranks,
                           std::uint32_t turn) {
    return with_type(type, [&]<class T>(T) {
        return find_wrong<T>(numbers, [&](std::size_t i) {
            T sum = 0;
            for (int rank = 0; rank < ranks; ++rank) {
                sum += number_at<T>(rank, i, turn);
            }
            return sum;
        });
    });
}

std::string find_wrong_number(NumberType type, std::span<const std::byte> numbers, int ranks,
                              std::uint32_t turn) {
    const std::size_t each = numbers.size() / size_of(type) / static_cast<std::size_t>(ranks);
    return with_type(type, [&]<class T>(T) {
        return find_wrong<T>(numbers, [&](std::size_t i) {
            return number_at<T>(static_cast<int>(i / each), i % each, turn);
        });
    });
}

} // namespace mpi_ring
