// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/remote_memory.hpp>

namespace rdmabuf::transport {

/// Selects which readers see the received data in GPU memory after a receive has completed.
enum class Visibility : std::uint8_t {
    /// The CPU, another device, or a GPU kernel that is started after the completion of the receive
    /// was reported. No flush read is needed for these readers.
    next_kernel,
    /// A GPU kernel that is already running when the data arrives. At the end of each receive, each
    /// working NIC of the channel performs a flush read: an RDMA read of one byte of this memory.
    /// Therefore the memory must be registered with Access::remote_read. For memory without this
    /// option, Channel::iflush() performs the same flush reads.
    running_kernel,
};

namespace detail {

/// Memory that every device of an endpoint has registered, except those that have failed. The
/// address of this object must not change, because requests in flight point to it.
struct MemoryState {
    /// The EndpointState whose devices have registered the memory. The pointer is only compared.
    const void* endpoint = nullptr;
    /// For memory that may outlive its endpoint: keeps the address of the EndpointState from being
    /// used again for another EndpointState. The memory of an object of std::make_shared() is freed
    /// only with its last weak pointer.
    std::weak_ptr<const void> reserved_address = {};
    std::uintptr_t address = 0;
    std::uint64_t length = 0;
    /// The iova of the first byte: the address of the memory in work requests.
    std::uint64_t iova = 0;
    Access access{};
    /// True if the transport may access the memory at `address` with the CPU.
    bool host = false;
    /// True if each receive into the memory ends with a flush read, so that GPU kernels that are
    /// already running see the data.
    bool flush_on_receive = false;
    std::size_t rails = 0;
    /// For each device, the chunks of the memory, whose boundaries are the same for all devices. A
    /// failed device has not registered its chunks: their keys are 0.
    std::array<std::vector<LocalChunk>, max_rails> chunks{};

    // One of the next three members owns the registrations: `lease` (a reference to a cached
    // registration), `region` or `dmabufs`. If all three are empty, the program owns them.
    RegistrationCache::Lease lease = {};
    std::optional<ChunkedRegion> region = std::nullopt;
    std::vector<DmaBufMR> dmabufs = {};

    [[nodiscard]] std::span<const LocalChunk> rail(std::size_t i) const noexcept {
        return chunks[i];
    }
    [[nodiscard]] bool holds(std::uintptr_t first, std::uint64_t count) const noexcept {
        // If `first` is less than `address`, the difference wraps around and is above `length`.
        return count <= length && first - address <= length - count;
    }
    [[nodiscard]] std::uint64_t device_address(std::uintptr_t at) const noexcept {
        return iova + (at - address);
    }
};

} // namespace detail

/// Memory that all devices of an Endpoint have registered, except those that have failed. The
/// object owns its registrations, except those of Endpoint::use_regions(), and must outlive the
/// requests that use it. The object can be moved but not copied.
class Memory {
  public:
    /// Creates an empty Memory, for messages of 0 bytes.
    Memory() noexcept = default;

    [[nodiscard]] std::uintptr_t address() const noexcept { return state_ ? state_->address : 0; }
    /// Returns the length of the memory in bytes; 0 for an empty Memory.
    [[nodiscard]] std::uint64_t length() const noexcept { return state_ ? state_->length : 0; }
    /// Returns the access with which the memory is registered.
    [[nodiscard]] Access access() const noexcept { return state_ ? state_->access : Access{}; }
    /// Returns true if the transport may access the memory with the CPU.
    [[nodiscard]] bool host() const noexcept { return state_ && state_->host; }

    /// Returns the descriptor that a peer needs for iput() and iget() on this memory. The rkeys in
    /// the descriptor can also give access to memory beside this range, because the cache can
    /// register a larger range. Send the descriptor to trusted peers only.
    /// @return the descriptor, or an error: EINVAL if this Memory is empty; EOVERFLOW if a device
    ///         needs more than 8 regions for the memory (see DeviceAttributes::max_mr_size)
    [[nodiscard]] Result<RemoteMemory> remote() const noexcept {
        if (state_ == nullptr) {
            return ErrorInfo{EINVAL, "", "the Memory is empty"};
        }
        if (state_->rail(0).size() > detail::max_chunks) {
            return ErrorInfo{EOVERFLOW, "",
                             "the device registers this memory in more than 8 regions: register "
                             "it in parts"};
        }
        detail::RemoteTable table;
        fill(table, state_->iova, state_->length);
        return RemoteMemory(table, state_->address, state_->length, state_->access);
    }

    // Only the transport itself calls the following functions.

    explicit Memory(std::unique_ptr<detail::MemoryState> state) noexcept
        : state_(std::move(state)) {}
    [[nodiscard]] const detail::MemoryState* state() const noexcept { return state_.get(); }

    /// Fills @p table with the regions of the @p length bytes that begin at @p iova. If the table
    /// has too few entries, it describes only as many bytes from @p iova on as its entries can
    /// hold.
    /// @return the number of bytes that the table describes
    static std::uint64_t fill(const detail::MemoryState& state, detail::RemoteTable& table,
                              std::uint64_t iova, std::uint64_t length) noexcept {
        table.rails = static_cast<std::uint16_t>(state.rails);
        table.chunks = 0;
        std::uint64_t named = 0;
        const auto first = state.rail(0);
        const LocalChunk* chunk = rdmabuf::detail::find_chunk(first, iova);
        while (chunk != nullptr && named < length && table.chunks < detail::max_chunks) {
            const std::uint64_t at = iova + named;
            const std::uint64_t count =
                std::min(length - named, chunk->length - (at - chunk->address));
            const auto which = static_cast<std::size_t>(chunk - first.data());
            detail::KeyedChunk& region = table.regions[table.chunks++];
            region = {.address = at, .length = count};
            for (std::size_t rail = 0; rail < state.rails; ++rail) {
                region.rkeys[rail] = state.rail(rail)[which].rkey;
            }
            named += count;
            chunk = which + 1 < first.size() ? chunk + 1 : nullptr;
        }
        return named;
    }

  private:
    void fill(detail::RemoteTable& table, std::uint64_t iova, std::uint64_t length) const noexcept {
        fill(*state_, table, iova, length);
    }

    std::unique_ptr<detail::MemoryState> state_;
};

} // namespace rdmabuf::transport
