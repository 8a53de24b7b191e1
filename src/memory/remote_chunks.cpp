// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/remote_chunks.hpp>

#include "base/wire_format.hpp"

namespace rdmabuf {
namespace {

constexpr detail::WireHeader chunks_header{{'R', 'D', 'R', 'C'}, 1};
/// Size of the encoded header in bytes: type identifier (4), version (2), reserved (2), number of
/// chunks (4), reserved (4), address of the first chunk (8).
constexpr std::size_t head_size = 24;
/// Size of an encoded chunk in bytes: length (8), rkey (4).
constexpr std::size_t chunk_size = 12;

constexpr std::uint64_t no_end = std::numeric_limits<std::uint64_t>::max();

} // namespace

RemoteChunks::RemoteChunks(const RemoteRegion& region) : RemoteChunks(std::vector{region}) {}

RemoteChunks::RemoteChunks(std::vector<RemoteRegion> chunks) : chunks_(std::move(chunks)) {
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
        const RemoteRegion& chunk = chunks_[i];
        std::string wrong;
        if (chunk.length == 0) {
            wrong = "has 0 bytes";
        } else if (chunk.length > no_end - chunk.address) {
            wrong = "ends beyond 64 bits";
        } else if (i != 0 && chunk.address != chunks_[i - 1].address + chunks_[i - 1].length) {
            wrong = "begins at " + std::to_string(chunk.address) + ", and the one before ends at " +
                    std::to_string(chunks_[i - 1].address + chunks_[i - 1].length);
        }
        if (!wrong.empty()) {
            throw Error(EINVAL, "RemoteChunks", "chunk " + std::to_string(i) + " " + wrong);
        }
    }
}

const RemoteRegion* RemoteChunks::find(std::uint64_t address) const noexcept {
    return detail::find_chunk(chunks(), address);
}

std::vector<std::byte> RemoteChunks::encode() const {
    std::vector<std::byte> bytes(head_size + chunks_.size() * chunk_size);
    detail::WireWriter writer(bytes, chunks_header);
    writer.put(std::uint16_t{0}); // reserved
    writer.put(static_cast<std::uint32_t>(chunks_.size()));
    writer.put(std::uint32_t{0}); // reserved
    writer.put(address());
    for (const RemoteRegion& chunk : chunks_) {
        writer.put(chunk.length);
        writer.put(chunk.rkey);
    }
    return bytes;
}

Result<RemoteChunks> RemoteChunks::decode(std::span<const std::byte> bytes) noexcept {
    if (bytes.size() < head_size) {
        return ErrorInfo{EMSGSIZE, "decode", "remote chunks have at least 24 bytes: truncated"};
    }
    detail::WireReader reader(bytes);
    if (const auto problem = reader.check(chunks_header); problem.error() != 0) {
        return problem;
    }
    const auto reserved = reader.get<std::uint16_t>();
    const auto count = reader.get<std::uint32_t>();
    if (reserved != 0 || reader.get<std::uint32_t>() != 0) {
        return ErrorInfo{EPROTO, "decode", "reserved bytes are set"};
    }
    auto address = reader.get<std::uint64_t>();
    if ((bytes.size() - head_size) % chunk_size != 0 ||
        (bytes.size() - head_size) / chunk_size != count) {
        return ErrorInfo{EMSGSIZE, "decode",
                         "the number of bytes does not match the number of chunks"};
    }
    if (count == 0 && address != 0) {
        return ErrorInfo{EPROTO, "decode", "there are no chunks, but an address"};
    }
    RemoteChunks decoded;
    try {
        decoded.chunks_.reserve(count);
    } catch (const std::bad_alloc&) {
        return ErrorInfo{ENOMEM, "decode", "there is no memory for that many chunks"};
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto length = reader.get<std::uint64_t>();
        const auto rkey = reader.get<std::uint32_t>();
        if (length == 0) {
            return ErrorInfo{EPROTO, "decode", "a chunk of 0 bytes"};
        }
        if (length > no_end - address) {
            return ErrorInfo{EPROTO, "decode", "address + length overflows 64 bits"};
        }
        decoded.chunks_.push_back({.address = address, .length = length, .rkey = rkey});
        address += length;
    }
    return decoded;
}

} // namespace rdmabuf
