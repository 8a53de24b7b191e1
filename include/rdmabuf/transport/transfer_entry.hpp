// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmabuf::transport {

class Memory;
class RemoteMemory;

namespace detail {
class ChannelState;
} // namespace detail

/// One transfer of Channel::iput_list() or iget_list(): a range of local memory and a range of the
/// peer's memory with the same length.
struct TransferEntry {
    const Memory* memory = nullptr;
    const void* address = nullptr;
    std::size_t length = 0;
    const RemoteMemory* remote = nullptr;
    /// The offset of the range from the first byte of the peer's memory, in bytes.
    std::uint64_t offset = 0;
};

/// The entries of a list that Channel::prepare_put_list() or prepare_get_list() has checked, so
/// that the list can be started many times without these checks. It points to the entries, and does
/// not copy them. It cannot be used after its channel was closed.
class PreparedList {
  private:
    friend class detail::ChannelState;

    std::span<const TransferEntry> entries_;
    std::uint64_t bytes_ = 0;
    /// Channel::number() of the channel; 0 if nothing was prepared.
    std::uint32_t channel_ = 0;
    bool is_read_ = false;
};

} // namespace rdmabuf::transport
