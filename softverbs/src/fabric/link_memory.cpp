// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/link_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <numeric>

namespace softverbs::fabric {
namespace {

constexpr std::size_t header_bytes = 4096;
constexpr std::size_t smallest_ring = 4096;
constexpr std::size_t largest_ring = std::size_t{64} << 20U;
/// These seals keep the size of the file constant. Otherwise one process could shrink the file and
/// cause SIGBUS in the other process.
constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t grants_at = 1024;
static_assert(2 * sizeof(Direction) <= grants_at);
static_assert(grants_at + 2 * sizeof(GrantTable) <= header_bytes);

std::size_t total_bytes(const RingSizes& sizes) noexcept {
    return header_bytes + 2 * std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

/// Returns whether the kernel overcommits memory, which means that vm.overcommit_memory is not 2.
bool overcommits() noexcept {
    const UniqueFd file(::open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC));
    char mode = '0';
    return !file || ::read(file.get(), &mode, 1) != 1 || mode != '2';
}

/// Sets the size in bytes of the memfd @p fd, the shared memory of a connection. If the kernel
/// overcommits memory, each page is allocated at its first access, so that unused parts of the
/// memory need no pages. Otherwise, all pages are allocated now, because an access to a page that
/// cannot be allocated raises SIGBUS. Returns 0, or -1 with errno set.
int resize(int fd, std::size_t size) noexcept {
    if (overcommits()) {
        return ::ftruncate(fd, static_cast<off_t>(size));
    }
    int done = 0;
    do {
        done = ::fallocate(fd, 0, 0, static_cast<off_t>(size));
    } while (done != 0 && errno == EINTR);
    return done;
}

} // namespace

bool valid(const RingSizes& sizes) noexcept {
    return std::all_of(sizes.begin(), sizes.end(), [](std::size_t size) {
        return std::has_single_bit(size) && size >= smallest_ring && size <= largest_ring;
    });
}

std::size_t longest_record(const RingSizes& sizes) noexcept {
    // A record (a request or a response) does not wrap around the end of its ring. If it were
    // longer than half of the ring, it might never fit. Requests are limited to a quarter of their
    // ring.
    return std::min(sizes[0] / 4, sizes[1] / 2) - record_header_bytes;
}

LinkMemory LinkMemory::make(const RingSizes& sizes, UniqueFd& fd) noexcept {
    LinkMemory memory;
    memory.sizes_ = sizes;
    UniqueFd file(::memfd_create("softverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const std::size_t size = total_bytes(sizes);
    if (!file || resize(file.get(), size) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, fixed_size) != 0) {
        errno = errno == ENFILE ? EMFILE : errno == EMFILE ? EMFILE : ENOMEM;
        return memory;
    }
    memory.mapping_ = Mapping(file.get(), size, PROT_READ | PROT_WRITE);
    if (!memory) {
        errno = ENOMEM;
        return memory;
    }
    fd = std::move(file);
    return memory;
}

LinkMemory LinkMemory::accept(int fd, const RingSizes& sizes) noexcept {
    LinkMemory memory;
    struct stat status {};
    const int sealed = ::fcntl(fd, F_GET_SEALS);
    if (!valid(sizes) || sealed < 0 || (sealed & fixed_size) != fixed_size ||
        (sealed & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0 || ::fstat(fd, &status) != 0 ||
        status.st_size != static_cast<off_t>(total_bytes(sizes))) {
        errno = EINVAL;
        return memory;
    }
    memory.sizes_ = sizes;
    memory.mapping_ = Mapping(fd, total_bytes(sizes), PROT_READ | PROT_WRITE);
    if (!memory) {
        errno = errno == ENOMEM ? ENOMEM : EINVAL;
    }
    return memory;
}

Direction& LinkMemory::outgoing(Side side) const noexcept {
    return reinterpret_cast<Direction*>(mapping_.bytes())[static_cast<unsigned>(side)];
}

GrantTable& LinkMemory::grants_to(Side side) const noexcept {
    return reinterpret_cast<GrantTable*>(mapping_.bytes() + grants_at)[static_cast<unsigned>(side)];
}

RingMemory LinkMemory::outgoing_ring(Side side, Lane lane) const noexcept {
    const auto index = static_cast<std::size_t>(lane);
    std::byte* bytes = mapping_.bytes() + header_bytes;
    bytes += static_cast<unsigned>(side) * (sizes_[0] + sizes_[1]) + (index == 0 ? 0 : sizes_[0]);
    return {bytes, sizes_[index], &outgoing(side).head[index]};
}

} // namespace softverbs::fabric
