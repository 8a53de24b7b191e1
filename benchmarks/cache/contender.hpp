// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rdmabuf/protection_domain.hpp>

/// Which entry is looked up next: any, and the same ones for every contender.
class Sequence {
  public:
    explicit Sequence(std::uint32_t seed) noexcept : state_(seed) {}
    /// Below @p limit, which is at most 65536.
    [[nodiscard]] std::uint32_t next(std::uint32_t limit) noexcept {
        state_ = state_ * 1664525U + 1013904223U;
        return ((state_ >> 16U) * limit) >> 16U;
    }

  private:
    std::uint32_t state_;
};

/// What is registered: pieces of memory, with as much between two of them, so that no cache takes
/// them for one.
struct Memory {
    static constexpr std::size_t piece = 4096;
    static constexpr std::size_t stride = 2 * piece;

    std::uintptr_t base = 0;
    std::uint32_t entries = 0;

    [[nodiscard]] std::uintptr_t address(std::uint32_t i) const noexcept {
        return base + i * stride;
    }
};

/// A registration cache that has an entry for each piece.
class Contender {
  public:
    virtual ~Contender() = default;
    Contender(const Contender&) = delete;
    Contender& operator=(const Contender&) = delete;

    /// Finds a piece, reads its key, and gives it back, as often. @return something of the keys.
    virtual std::uint32_t hit(long times, std::uint32_t seed) = 0;

  protected:
    Contender() = default;
};

std::unique_ptr<Contender> make_library_cache(const rdmabuf::ProtectionDomain& pd,
                                              const Memory& memory);
/// std::map by address, with a mutex and a reference count: what programs write for themselves.
std::unique_ptr<Contender> make_map_cache(const Memory& memory);
/// UCX's, registering nothing; nullptr where the benchmark was built without libucs.
std::unique_ptr<Contender> make_ucx_cache(const Memory& memory);

// What callgrind counts inside of.
extern "C" {
std::uint32_t hit_library(Contender& contender, long times);
std::uint32_t hit_map(Contender& contender, long times);
std::uint32_t hit_ucx(Contender& contender, long times);
}
