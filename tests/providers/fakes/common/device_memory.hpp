// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace fake_driver {

/// Addresses of a device, and what is behind them: memfds, which are exported in place of dma-bufs.
/// The CPU cannot touch the addresses, as it cannot those of a GPU; bytes() is where it sees what
/// is there.
///
/// A page has one place in one memfd. Sharing a range that overlaps one shared before and is not
/// the same moves its pages, and the earlier descriptor shows what they held until then.
class DeviceMemory {
  public:
    DeviceMemory();
    void reset();

    /// Whole pages, at the lowest addresses that are free; 0 when there are none.
    /// @param visible  to the CPU as well
    std::uint64_t take(std::size_t size, bool visible);
    void give_back(std::uint64_t start);

    /// A descriptor of so many bytes at @p start, which are whole pages; -1 and errno.
    int share(std::uint64_t start, std::size_t size);
    [[nodiscard]] std::byte* bytes(std::uint64_t address) const noexcept {
        return view_ + (address - arena_);
    }

  private:
    struct Block {
        std::size_t size;
        bool visible;
    };
    /// A memfd that holds the pages from an address on.
    struct Home {
        std::size_t size;
        int fd;
    };
    int settle(std::uint64_t start, std::size_t size);
    void forget_homes(std::uint64_t start, std::size_t size);
    void forbid(std::uint64_t start, std::size_t size);
    [[nodiscard]] bool visible(std::uint64_t start) const;

    std::uint64_t arena_;
    std::byte* view_;
    std::map<std::uint64_t, Block> blocks_;
    std::map<std::uint64_t, Home> homes_;
};

} // namespace fake_driver
