// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace fake_driver {

/// Addresses of a device and their bytes, which are in memfds. The memfds are exported in place of
/// dma-bufs. The CPU cannot access the addresses. It accesses the bytes through bytes().
///
/// Each page is in one memfd. share() of a range that overlaps an earlier range and differs from it
/// moves the pages to a new memfd. The earlier descriptor then keeps the earlier bytes.
class DeviceMemory {
  public:
    DeviceMemory();
    void reset();

    /// Takes whole pages at the lowest free addresses.
    /// @param visible    whether the CPU can access the addresses
    /// @param alignment  of the address in bytes, a multiple of the page size
    /// @return the address, 0 if there is no room
    std::uint64_t take(std::size_t size, bool visible, std::size_t alignment = 1);
    void give_back(std::uint64_t start);

    /// Returns a descriptor of @p size bytes at @p start, which are whole pages; -1 and errno if
    /// there is none.
    int share(std::uint64_t start, std::size_t size);
    [[nodiscard]] std::byte* bytes(std::uint64_t address) const noexcept {
        return view_ + (address - arena_);
    }

  private:
    struct Block {
        std::size_t size;
        bool visible;
    };
    /// A memfd that contains the pages from an address on.
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
