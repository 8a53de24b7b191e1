// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/protection_domain.hpp>

/// A pseudorandom sequence of numbers, which select the entries to look up. Equal seeds give equal
/// sequences.
class Sequence {
  public:
    explicit Sequence(std::uint32_t seed) noexcept : state_(seed) {}
    /// Returns a number below @p limit, which must be at most 65536.
    [[nodiscard]] std::uint32_t next(std::uint32_t limit) noexcept {
        state_ = state_ * 1664525U + 1013904223U;
        return ((state_ >> 16U) * limit) >> 16U;
    }

  private:
    std::uint32_t state_;
};

/// The memory to register: pieces of 4096 bytes, and behind each piece a gap of the same size, so
/// that no cache merges adjacent pieces.
struct Memory {
    static constexpr std::size_t piece = 4096;
    static constexpr std::size_t stride = 2 * piece;

    std::uintptr_t base = 0;
    std::uint32_t entries = 0;

    [[nodiscard]] std::uintptr_t address(std::uint32_t i) const noexcept {
        return base + i * stride;
    }
};

/// A registration cache that contains an entry for each piece of Memory.
class Contender {
  public:
    virtual ~Contender() = default;
    Contender(const Contender&) = delete;
    Contender& operator=(const Contender&) = delete;

    /// Does the following @p times times: looks up a pseudorandom piece, reads its key and releases
    /// the entry.
    /// @return all keys, combined by exclusive or
    virtual std::uint32_t hit(long times, std::uint32_t seed) = 0;

  protected:
    Contender() = default;
};

std::unique_ptr<Contender> make_library_cache(const rdmabuf::ProtectionDomain& pd,
                                              const Memory& memory);
/// A std::map by address with a mutex and a reference count, as programs write it themselves.
std::unique_ptr<Contender> make_map_cache(const Memory& memory);
/// UCX's registration cache (ucs_rcache), with functions that register nothing; nullptr in a build
/// without libucs.
std::unique_ptr<Contender> make_ucx_cache(const Memory& memory);

// The functions whose instructions callgrind counts.
extern "C" {
std::uint32_t hit_library(Contender& contender, long times);
std::uint32_t hit_map(Contender& contender, long times);
std::uint32_t hit_ucx(Contender& contender, long times);
}
