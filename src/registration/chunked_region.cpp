// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/wire_format.hpp"
#include "registration/registration_walk.hpp"

namespace rdmabuf {
namespace {

constexpr detail::WireHeader chunks_header{{'R', 'D', 'R', 'C'}, 1};
/// Size of the encoded header in bytes: type identifier (4), version (2), reserved (2), number of
/// chunks (4), reserved (4), address of the first chunk (8).
constexpr std::size_t encoded_head_size = 24;
/// Size of an encoded chunk in bytes: length (8), rkey (4).
constexpr std::size_t encoded_chunk_size = 12;

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
    std::vector<std::byte> bytes(encoded_head_size + chunks_.size() * encoded_chunk_size);
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
    if (bytes.size() < encoded_head_size) {
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
    if ((bytes.size() - encoded_head_size) % encoded_chunk_size != 0 ||
        (bytes.size() - encoded_head_size) / encoded_chunk_size != count) {
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

namespace {

constexpr const char* caller = "ChunkedRegion";

/// The device that has the smallest maximum region size, and this size in bytes.
struct SmallestLimit {
    std::string device;
    std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();
};

SmallestLimit smallest_limit(std::span<const ProtectionDomain> pds) {
    SmallestLimit smallest;
    for (const ProtectionDomain& pd : pds) {
        static_cast<void>(detail::native_of(pd, caller, "ProtectionDomain"));
        const std::uint64_t limit = pd.context().attributes().max_mr_size();
        if (smallest.device.empty() || limit < smallest.bytes) {
            smallest = {.device = pd.context().device_name(), .bytes = limit};
        }
    }
    return smallest;
}

/// Returns the maximum size of a chunk in bytes, a multiple of the page size.
std::size_t choose_chunk_size(std::span<const ProtectionDomain> pds,
                              const ChunkedRegionOptions& options) {
    if (pds.empty()) {
        throw Error(EINVAL, caller, "no protection domain to register on");
    }
    const SmallestLimit limit = smallest_limit(pds);
    if (has(options.registration.access, Access::zero_based)) {
        throw Error(EINVAL, caller,
                    "options contradict each other: zero_based does not support chunks, each of "
                    "which would begin at address 0; set an iova instead");
    }
    const auto page = std::uint64_t{detail::page_size()};
    const std::uint64_t most =
        std::min<std::uint64_t>(limit.bytes, std::numeric_limits<std::size_t>::max()) / page * page;
    if (most == 0) {
        throw Error(EINVAL, caller,
                    limit.device + " registers at most " + std::to_string(limit.bytes) +
                        " bytes at once, which is less than a page of " + std::to_string(page));
    }
    if (options.chunk_size % page != 0) {
        throw Error(EINVAL, caller,
                    "a chunk of " + std::to_string(options.chunk_size) +
                        " bytes is not a multiple of the page size, " + std::to_string(page));
    }
    if (options.chunk_size > most) {
        throw Error(EINVAL, caller,
                    "a chunk of " + std::to_string(options.chunk_size) + " bytes: " + limit.device +
                        " registers at most " + std::to_string(limit.bytes) + " at once");
    }
    return static_cast<std::size_t>(options.chunk_size != 0 ? options.chunk_size : most);
}

/// Returns the result of @p make, a function that allocates a list of chunks, and may call
/// exporters.
/// @throws Error ENOMEM if @p make throws std::bad_alloc or std::length_error
template <class Make>
auto with_memory(const Make& make) {
    constexpr const char* hint =
        "a call had no host memory left, for example for the list of chunks: larger chunks need a "
        "shorter list";
    try {
        return make();
    } catch (const std::bad_alloc&) {
        throw Error(ENOMEM, caller, hint);
    } catch (const std::length_error&) {
        throw Error(ENOMEM, caller, hint);
    }
}

/// If the NIC has no extended translation offset for UMR, mlx5 refuses dma-bufs with this number of
/// pages or more: MLX5_MAX_UMR_PAGES and mlx5r_umr_can_load_pas() in drivers/infiniband/hw/mlx5.
constexpr std::size_t mlx5_umr_pages = 65536;
/// The vendor_id of mlx5 devices. mlx4 devices have the same vendor_id, but import no dma-bufs.
constexpr std::uint32_t mellanox = 0x02c9;
/// The minimum chunk size to try, in bytes. If the registration of a chunk of this size fails, the
/// chunk size is probably not the cause.
constexpr std::size_t least_chunk = std::size_t{64} << 20U;

/// Returns the next chunk size to try, in bytes, after the registration of chunks of up to @p tried
/// bytes failed with the attempts @p trail. Returns 0 if no smaller size is worth trying.
std::size_t smaller_chunk(std::span<const ProtectionDomain> pds, const Trail& trail,
                          std::size_t tried) {
    const std::size_t page = detail::page_size();
    const std::size_t half = (tried / 2 + page - 1) / page * page;
    for (const Attempt& attempt : trail) {
        const bool is_dmabuf = attempt.path == RegistrationPath::dmabuf ||
                               attempt.path == RegistrationPath::dmabuf_data_direct;
        // Finds the NIC of the attempt. An attempt that failed before a NIC was used, for example
        // in the exporter, has no device name.
        const auto failed = std::ranges::find_if(pds, [&attempt](const ProtectionDomain& pd) {
            return pd.context().device_name() == attempt.device;
        });
        if (!is_dmabuf || failed == pds.end()) {
            continue;
        }
        const Context& nic = failed->context();
        if (attempt.error == EINVAL && tried >= mlx5_umr_pages * page &&
            nic.attributes().native.orig_attr.vendor_id == mellanox) {
            return (mlx5_umr_pages - 1) * page;
        }
        // Only on the path dmabuf can the length of a chunk be the cause of EOPNOTSUPP. On the path
        // dmabuf_data_direct, EOPNOTSUPP has other causes, for example a NIC without a data-direct
        // PCI function.
        const bool may_be_length =
            attempt.error == ENOMEM ||
            (attempt.error == EOPNOTSUPP && attempt.path == RegistrationPath::dmabuf &&
             nic.dmabuf_import().available);
        if (may_be_length && half >= least_chunk) {
            return half;
        }
    }
    return 0;
}

} // namespace

ChunkedRegion::ChunkedRegion(std::span<const ProtectionDomain> pds, const Resolver& resolver,
                             std::uintptr_t address, std::size_t length,
                             const ChunkedRegionOptions& options)
    : ChunkedRegion(with_memory([&] { return make(pds, resolver, address, length, options); })) {}

ChunkedRegion::Made ChunkedRegion::make(std::span<const ProtectionDomain> pds,
                                        const Resolver& resolver, std::uintptr_t address,
                                        std::size_t length, const ChunkedRegionOptions& options) {
    const auto page = detail::page_size();
    std::size_t chunk_size = choose_chunk_size(pds, options);
    std::vector<std::uint32_t> max_message_sizes;
    max_message_sizes.reserve(pds.size());
    for (const ProtectionDomain& pd : pds) {
        max_message_sizes.push_back(pd.context().max_message_size());
    }
    Trail* const callers_trail = options.registration.trail;
    while (true) {
        Trail trail;
        RegistrationOptions registration = options.registration;
        registration.trail = &trail;
        std::optional<Error> refusal;
        try {
            detail::RegistrationWalk walk({.pds = pds,
                                           .resolver = resolver,
                                           .address = address,
                                           .length = length,
                                           .options = registration,
                                           .chunk = chunk_size,
                                           .function = caller});
            detail::run_walks({&walk, 1}, registration.threads);
            Made made{walk.take(), chunk_size, std::move(max_message_sizes)};
            if (callers_trail != nullptr) {
                *callers_trail = made.set->trail;
            }
            return made;
        } catch (const Error& error) {
            refusal = error;
        }
        // A chunk is never longer than the range rounded to whole pages at its start and its end.
        const std::size_t longest = std::min(chunk_size, (length / page + 2) * page);
        try {
            chunk_size = options.chunk_size == 0 ? smaller_chunk(pds, trail, longest) : 0;
        } catch (const Error&) {
            chunk_size = 0; // A failed query of a device must not replace the original error.
        }
        if (chunk_size == 0) {
            if (callers_trail != nullptr) {
                *callers_trail = std::move(trail);
            }
            throw *std::move(refusal);
        }
    }
}

ChunkedRegion::ChunkedRegion(Made made)
    : RegisteredMemory(std::move(made.set)),
      chunk_size_(made.chunk_size),
      max_message_sizes_(std::move(made.max_message_sizes)),
      chunks_(with_memory([this] {
          std::vector<LocalChunk> chunks;
          chunks.reserve(set().regions.size());
          for (const detail::AnyRegion& region : set().regions) {
              chunks.push_back(as_chunk(region));
          }
          return chunks;
      })) {}

RemoteChunks ChunkedRegion::remote(std::size_t i) const {
    if (i >= size()) {
        refuse("ChunkedRegion::remote");
    }
    return with_memory([this, i] {
        std::vector<RemoteRegion> all;
        all.reserve(chunk_count());
        for (std::size_t chunk = 0; chunk < chunk_count(); ++chunk) {
            all.push_back(usable(i * chunk_count() + chunk, "ChunkedRegion::remote").remote());
        }
        return RemoteChunks(std::move(all));
    });
}

void ChunkedRegion::close() {
    chunks_.clear();
    RegisteredMemory::close();
}

} // namespace rdmabuf
