// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fabric/connection.hpp"
#include "objects/mapping.hpp"
#include "objects/memory.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

/// Returns whether the CPU can access this memory directly: without DMA_BUF_IOCTL_SYNC and without
/// the CUDA driver. Returns false if Window::data is null.
[[nodiscard]] inline bool is_plain(const Window& window) noexcept {
    return window.data != nullptr && !is_unmapped(window) &&
           (window.mr->mapping == nullptr || !window.mr->mapping->is_dmabuf);
}

/// Returns the address at which the CPU can access the @p length bytes that start at @p address in
/// a memory region. Returns null if the key does not permit this access, if the memory is not plain
/// (see is_plain()) or not pinned, or if it belongs to a region of another process. The caller must
/// then call open_local(), which checks the access. @p length must not be 0.
/// @param access  0 (read) or IBV_ACCESS_LOCAL_WRITE
[[nodiscard]] inline std::byte* find_plain_bytes(const Pd& pd, std::uint64_t address,
                                                 std::uint64_t length, std::uint32_t lkey,
                                                 unsigned access) noexcept {
    const Grant* const grant = process().keys.find_local(lkey);
    if (grant == nullptr || grant->revoked || grant->pd != &pd || address < grant->iova ||
        length > grant->length || address - grant->iova > grant->length - length ||
        (grant->access & (access | IBV_ACCESS_ON_DEMAND)) != access || grant->base == nullptr) {
        return nullptr;
    }
    const Mr& region = *grant->mr;
    if (region.cuda != nullptr ||
        (region.mapping != nullptr && (region.mapping->is_dmabuf || region.is_foreign))) {
        return nullptr;
    }
    return grant->base + (address - grant->iova);
}

/// The memory of a scatter/gather list, accessed as one range of bytes. Valid while the caller
/// holds Process::lock.
class EntryList {
  public:
    EntryList() noexcept {} // NOLINT: windows_ is not initialised, to save time
    ~EntryList();
    EntryList(const EntryList&) = delete;
    EntryList& operator=(const EntryList&) = delete;

    /// Checks the access to the first @p length bytes of a scatter/gather list, and begins the CPU
    /// access (see sync_cpu_access()). The destructor ends it. Returns false if the access is not
    /// permitted.
    /// @param write  whether the memory will be written
    [[nodiscard]] bool open(const Pd& pd, std::span<const ibv_sge> entries, std::uint64_t length,
                            bool write);
    /// Makes this list consist of the range @p window, which open_remote() must have checked, and
    /// begins the CPU access.
    void open(const Window& window, bool write);

    [[nodiscard]] std::span<const Window> windows() const { return {windows_.data(), count_}; }

    /// Writes @p bytes to the memory, from the offset @p offset. The memory must be long enough.
    /// Returns false if the CUDA driver could not copy the bytes to GPU memory.
    [[nodiscard]] bool put(std::uint64_t offset, std::span<const std::byte> bytes) const;
    /// Copies data of the sending process, at the addresses in @p segments, to the offset @p offset
    /// of this memory. Returns 0 or an errno: ESTALE (the sender has invalidated an address),
    /// EFAULT (the CUDA driver could not copy to this memory), or the error of Connection::pull().
    /// @param from  connection to the sending process; null: this process
    /// @param lane  the ring (for requests or for responses) in which the segments arrived
    /// @param done  the number of bytes that earlier calls have copied; this call increases it
    /// @param limit  the maximum number of bytes that this call copies
    [[nodiscard]] int fetch(std::uint64_t offset, fabric::Connection* from, fabric::Lane lane,
                            std::span<const fabric::Segment> segments, std::uint64_t& done,
                            std::uint64_t limit) const;
    /// Stores in @p out the buffers that contain the @p length bytes at the offset @p offset.
    /// Returns the number of buffers, or no value if the CUDA driver could not copy from GPU
    /// memory. Data that the CPU cannot access is copied to a bounce buffer, which all EntryLists
    /// share. Therefore the buffers are valid until the next call of parts() or fetch() of any
    /// EntryList.
    /// @param length  at most record_payload, so that the data fits into the bounce buffer
    [[nodiscard]] std::optional<std::size_t> parts(std::uint64_t offset, std::uint64_t length,
                                                   std::span<std::span<const std::byte>> out) const;

  private:
    void add(const Window& window);
    /// Calls function(window, offset, length) for each scatter/gather entry that has bytes in the
    /// range. The argument "offset" of the function is relative to the entry.
    template <class Function>
    void for_each(std::uint64_t offset, std::uint64_t length, Function&& function) const;

    std::array<Window, max_sge> windows_; // only the first count_ are initialised
    std::size_t count_ = 0;
    bool write_ = false;
};

} // namespace softverbs
