// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport/detail/endpoint_state.hpp>
#include <rdmabuf/transport/detail/leased_memory.hpp>
#include <rdmabuf/transport/detail/loopback_copy.hpp>
#include <rdmabuf/transport/detail/registering.hpp>

#include "transport/unlocked.hpp"

namespace rdmabuf::transport::detail {

// The functions fill_*() below throw if a registration fails. The destructor of MemoryState then
// releases the regions that were registered before.
namespace {

/// Returns the maximum length in bytes of a region that every device can register. The length is a
/// multiple of the page size.
std::uint64_t chunk_limit(const EndpointState& endpoint) noexcept {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    return std::max(endpoint.max_mr_size / page * page, page);
}

/// Gives failed devices the same chunks as the first device, but with keys 0.
void fill_failed(MemoryState& state) {
    for (std::size_t rail = 1; rail < state.rails; ++rail) {
        if (state.chunks[rail].empty()) {
            state.chunks[rail] = state.chunks[0];
            for (LocalChunk& chunk : state.chunks[rail]) {
                chunk.lkey = chunk.rkey = 0;
            }
        }
    }
}

/// Returns a copy of EndpointState::registering, after reading the asynchronous events of the
/// devices. While EndpointOptions::mutex is unlocked, another thread may change the original.
RegisteringDevices working_devices(EndpointState& endpoint) {
    static_cast<void>(endpoint.works(0));
    return endpoint.registering;
}

/// @param chunk_size  see ChunkedRegionOptions::chunk_size
void fill_chunked(EndpointState& endpoint, MemoryState& state, std::size_t chunk_size) {
    ChunkedRegionOptions options = {.registration = endpoint.options.cache.registration,
                                    .chunk_size = chunk_size};
    options.registration.access = state.access;
    options.registration.topology = endpoint.options.cache.topology.get();
    const RegisteringDevices devices = working_devices(endpoint);
    const Unlocked unlocked(endpoint.options.mutex);
    const ChunkedRegion& region =
        state.region.emplace(devices.pds, endpoint.resolver, state.address,
                             static_cast<std::size_t>(state.length), options);
    state.iova = region.iova();
    state.host = region.path() == RegistrationPath::host;
    for (std::size_t rail = 0; rail < state.rails; ++rail) {
        if (devices.works(rail)) {
            const auto chunks = region.chunks(devices.index[rail]);
            state.chunks[rail].assign(chunks.begin(), chunks.end());
        }
    }
    fill_failed(state);
}

void fill_from_cache(EndpointState& endpoint, MemoryState& state) {
    use_lease(state,
              endpoint.cache.load()->acquire(state.address, static_cast<std::size_t>(state.length),
                                             state.access),
              endpoint.registering);
}

void fill_from_dmabuf(EndpointState& endpoint, const DmaBufRange& range, MemoryState& state) {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t limit = chunk_limit(endpoint);
    // The kernel requires that the iova and the offset in the dma-buf are equal modulo the page
    // size. If this is not true for the address, the offset in the dma-buf is used as the iova.
    state.iova = range.address % page == range.offset % page ? range.address : range.offset;
    const RegisteringDevices devices = working_devices(endpoint);
    const Unlocked unlocked(endpoint.options.mutex);
    for (std::size_t rail = 0; rail < state.rails; ++rail) {
        for (std::uint64_t done = 0; devices.works(rail) && (done < state.length || done == 0);) {
            // All chunks except the first begin at a page boundary.
            const std::uint64_t into_page = (range.offset + done) % page;
            const std::uint64_t count = std::min(state.length - done, limit - into_page);
            const DmaBufMR& region = state.dmabufs.emplace_back(
                endpoint.pds[rail],
                DmaBufRange{.fd = range.fd,
                            .offset = range.offset + done,
                            .length = static_cast<std::size_t>(count),
                            .address = range.address + done},
                DmaBufOptions{.access = state.access, .iova = state.iova + done});
            state.chunks[rail].push_back(as_chunk(region));
            done += count;
        }
    }
    fill_failed(state);
}

/// Returns true if @p regions have no gaps, have the same ranges as @p first, and have @p length
/// bytes in total.
bool are_the_memory(std::span<const LocalChunk> regions, std::span<const LocalChunk> first,
                    std::uint64_t length) noexcept {
    std::uint64_t named = 0;
    for (const LocalChunk& region : regions) {
        if (region.length == 0 || region.address != regions.front().address + named ||
            region.length > length - named) {
            return false;
        }
        named += region.length;
    }
    return named == length &&
           std::ranges::equal(regions, first, [](const LocalChunk& one, const LocalChunk& other) {
               return one.address == other.address && one.length == other.length;
           });
}

/// Returns true if an eager message can span LoopbackCopy::max_pieces + 1 regions, one more than
/// LoopbackCopy::copy() supports.
bool are_too_short(std::span<const LocalChunk> regions, std::uint64_t eager_limit) noexcept {
    constexpr std::size_t between = LoopbackCopy::max_pieces - 1;
    for (std::size_t i = 1; i + between < regions.size(); ++i) {
        std::uint64_t length = 2; // one byte of each of the two outer regions
        for (const LocalChunk& region : regions.subspan(i, between)) {
            length += region.length;
        }
        if (length <= eager_limit) {
            return true;
        }
    }
    return false;
}

template <class Fill>
Result<Memory> register_with(EndpointState& endpoint, std::uintptr_t address, std::size_t length,
                             Access access, Visibility visibility, const Fill& fill) noexcept {
    if (visibility == Visibility::running_kernel && !has(access, Access::remote_read)) {
        return error_info(EINVAL, "Visibility::running_kernel needs Access::remote_read");
    }
    auto made = attempt([] { return std::make_unique<MemoryState>(); });
    if (!made) {
        return made.error_info();
    }
    MemoryState& state = **made;
    state.endpoint = &endpoint;
    state.reserved_address = endpoint.weak_from_this();
    state.address = address;
    state.length = length;
    state.access = access;
    state.rails = endpoint.pds.size();
    const auto filled = attempt([&] {
        fill(state);
        if (!state.host && length > 0) {
            state.flush_on_receive = visibility == Visibility::running_kernel;
            endpoint.shared.create_loopback();
        }
    });
    return filled ? Result<Memory>(Memory(*std::move(made))) : Result<Memory>(filled.error_info());
}

} // namespace

Result<Memory> register_address(EndpointState& endpoint, std::uintptr_t address, std::size_t length,
                                Access access, Visibility visibility) noexcept {
    return register_with(endpoint, address, length, access, visibility, [&](MemoryState& state) {
        const std::uint64_t limit = chunk_limit(endpoint);
        length > limit ? fill_chunked(endpoint, state, static_cast<std::size_t>(limit))
                       : fill_from_cache(endpoint, state);
    });
}

Result<Memory> register_uncached(EndpointState& endpoint, std::uintptr_t address,
                                 std::size_t length, Access access,
                                 Visibility visibility) noexcept {
    return register_with(endpoint, address, length, access, visibility,
                         [&](MemoryState& state) { fill_chunked(endpoint, state, 0); });
}

Result<Memory> register_dmabuf(EndpointState& endpoint, const DmaBufRange& range, Access access,
                               Visibility visibility) noexcept {
    return register_with(endpoint, range.address, range.length, access, visibility,
                         [&](MemoryState& state) { fill_from_dmabuf(endpoint, range, state); });
}

Result<Memory> use_regions(EndpointState& endpoint, std::uintptr_t address, std::size_t length,
                           Access access, bool host,
                           std::span<const std::span<const LocalChunk>> regions,
                           Visibility visibility) noexcept {
    bool registered = regions.size() == endpoint.pds.size();
    bool covered = registered && !regions.front().empty();
    for (std::size_t rail = 0; registered && rail < regions.size(); ++rail) {
        registered = !regions[rail].empty() || !endpoint.registering.works(rail);
        covered =
            covered && (regions[rail].empty() || are_the_memory(regions[rail], regions[0], length));
    }
    if (!registered) {
        return error_info(EINVAL, "the memory must be registered with each device");
    }
    if (!covered) {
        return error_info(
            EINVAL,
            "the regions must be the memory, from its first to its last byte, and the "
            "same for each device");
    }
    if (!host && are_too_short(regions.front(), endpoint.options.eager_limit)) {
        return error_info(EINVAL,
                          "the regions of device memory are too short: a message of eager_limit "
                          "bytes must fit into 8 of them");
    }
    return register_with(endpoint, address, length, access, visibility, [&](MemoryState& state) {
        state.host = host;
        state.iova = regions.front().front().address;
        for (std::size_t rail = 0; rail < state.rails; ++rail) {
            state.chunks[rail].assign(regions[rail].begin(), regions[rail].end());
        }
        fill_failed(state);
    });
}

} // namespace rdmabuf::transport::detail
