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
    /// The offset of the range from the first byte of the peer's memory, in bytes.
    std::uint64_t offset = 0;
};

} // namespace rdmabuf::transport
