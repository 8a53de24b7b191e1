// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmabuf::transport {

class Memory;
class RemoteMemory;

/// One transfer of Channel::iput_list() or iget_list(): a range of local memory and a range of the
/// peer's memory with the same length.
struct TransferEntry {
    const Memory* memory = nullptr;
    const void* address = nullptr;
    std::size_t length = 0;
    const RemoteMemory* remote = nullptr;
    /// Offset in bytes of the range in the peer's memory.
    std::uint64_t offset = 0;
};

} // namespace rdmabuf::transport
