// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rdmabuf/transport/detail/chunk_table.hpp>

namespace rdmabuf::transport::detail {

ChunkTable ChunkTable::describe(const MemoryState& memory, std::uint64_t address,
                                std::uint64_t wanted) noexcept {
    ChunkTable result;
    result.length = Memory::fill(memory, result, address, wanted);
    return result;
}

bool ChunkTable::decode(std::span<const std::byte> bytes, std::uint16_t count, std::size_t rails,
                        std::uint64_t length, RemoteTable& table) noexcept {
    if (count > max_chunks || bytes.size() != count * sizeof(KeyedChunk)) {
        return false;
    }
    table.chunks = count;
    table.rails = static_cast<std::uint16_t>(rails);
    std::uint64_t total = 0;
    std::uint64_t next = 0;
    for (std::size_t c = 0; c < count; ++c) {
        KeyedChunk& chunk = table.regions[c];
        std::memcpy(&chunk, bytes.data() + c * sizeof chunk, sizeof chunk);
        if (chunk.length == 0 || chunk.length > length - total ||
            chunk.address + (chunk.length - 1) < chunk.address ||
            (c > 0 && (chunk.address != next || next == 0))) {
            return false;
        }
        total += chunk.length;
        next = chunk.address + chunk.length;
    }
    return total == length;
}

} // namespace rdmabuf::transport::detail
