// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/error.hpp>

#include "base/pages.hpp"
#include "registration/registration_walk.hpp"

namespace rdmabuf {
namespace {

constexpr const char* function = "ChunkedRegion";

/// In whole pages.
std::size_t choose_chunk_size(const ProtectionDomain& pd, const ChunkedRegionOptions& options) {
    if (has(options.registration.access, Access::zero_based)) {
        throw Error(EINVAL, function,
                    "options contradict each other: chunks, and zero_based, by which each would "
                    "begin at address 0; give an iova instead");
    }
    const auto page = std::uint64_t{detail::page_size()};
    const std::uint64_t limit = pd.context().attributes().max_mr_size();
    const std::uint64_t most =
        std::min<std::uint64_t>(limit, std::numeric_limits<std::size_t>::max()) / page * page;
    if (most == 0) {
        throw Error(EINVAL, function,
                    pd.context().device_name() + " registers at most " + std::to_string(limit) +
                        " bytes at once, and a page has " + std::to_string(page));
    }
    if (options.chunk_size % page != 0) {
        throw Error(EINVAL, function,
                    "a chunk of " + std::to_string(options.chunk_size) +
                        " bytes is not whole pages of " + std::to_string(page));
    }
    if (options.chunk_size > most) {
        throw Error(EINVAL, function,
                    "a chunk of " + std::to_string(options.chunk_size) +
                        " bytes: " + pd.context().device_name() + " registers at most " +
                        std::to_string(limit) + " at once");
    }
    return static_cast<std::size_t>(options.chunk_size != 0 ? options.chunk_size : most);
}

} // namespace

ChunkedRegion::ChunkedRegion(const ProtectionDomain& pd, const Resolver& resolver,
                             std::uintptr_t address, std::size_t length,
                             const ChunkedRegionOptions& options)
    : ChunkedRegion([&] {
          const std::size_t chunk_size = choose_chunk_size(pd, options);
          detail::RegistrationWalk walk({.pds = std::span(&pd, 1),
                                         .resolver = resolver,
                                         .address = address,
                                         .length = length,
                                         .options = options.registration,
                                         .chunk = chunk_size,
                                         .function = function});
          return Made{walk.run(), chunk_size};
      }()) {}

ChunkedRegion::ChunkedRegion(Made made)
    : RegisteredMemory(std::move(made.set)), chunk_size_(made.chunk_size) {
    chunks_.reserve(set().regions.size());
    for (const detail::AnyRegion& region : set().regions) {
        chunks_.push_back(as_chunk(region));
    }
}

RemoteChunks ChunkedRegion::remote() const {
    std::vector<RemoteRegion> all;
    all.reserve(chunks_.size());
    for (std::size_t i = 0; i < set().regions.size(); ++i) {
        all.push_back(usable(i, "ChunkedRegion::remote").remote());
    }
    return RemoteChunks(std::move(all));
}

void ChunkedRegion::close() {
    chunks_.clear();
    RegisteredMemory::close();
}

} // namespace rdmabuf
