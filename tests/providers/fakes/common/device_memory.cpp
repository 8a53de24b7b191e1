// SPDX-License-Identifier: BSD-3-Clause
#include "device_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <vector>

namespace fake_driver {
namespace {

constexpr std::size_t arena_size = std::size_t{16} << 30U;

std::byte* reserve() {
    void* const start =
        ::mmap(nullptr, arena_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) {
        std::abort();
    }
    return static_cast<std::byte*>(start);
}

std::size_t whole_pages(std::size_t size) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page;
}

void map(void* where, std::size_t size, int fd) {
    if (::mmap(where, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        std::abort();
    }
}

} // namespace

DeviceMemory::DeviceMemory()
    : arena_(reinterpret_cast<std::uint64_t>(reserve())), view_(reserve()) {}

void DeviceMemory::reset() {
    while (!blocks_.empty()) {
        give_back(blocks_.begin()->first);
    }
}

std::uint64_t DeviceMemory::take(std::size_t size, bool visible, std::size_t alignment) {
    const auto aligned = [=](std::uint64_t address) {
        return (address + alignment - 1) / alignment * alignment;
    };
    size = whole_pages(size);
    std::uint64_t start = aligned(arena_);
    for (const auto& [taken, block] : blocks_) {
        if (taken >= start && taken - start >= size) {
            break;
        }
        start = std::max(start, aligned(taken + block.size));
    }
    if (start - arena_ > arena_size || size > arena_size - (start - arena_)) {
        return 0;
    }
    blocks_.emplace(start, Block{.size = size, .visible = visible});
    if (settle(start, size) < 0) {
        blocks_.erase(start);
        return 0;
    }
    return start;
}

void DeviceMemory::give_back(std::uint64_t start) {
    const auto found = blocks_.find(start);
    forget_homes(start, found->second.size);
    forbid(start, found->second.size);
    blocks_.erase(found);
}

void DeviceMemory::forbid(std::uint64_t start, std::size_t size) {
    for (void* const where : {static_cast<void*>(bytes(start)), reinterpret_cast<void*>(start)}) {
        if (::mmap(where, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                   -1, 0) == MAP_FAILED) {
            std::abort();
        }
    }
}

bool DeviceMemory::visible(std::uint64_t start) const {
    return std::prev(blocks_.upper_bound(start))->second.visible;
}

void DeviceMemory::forget_homes(std::uint64_t start, std::size_t size) {
    for (auto home = homes_.begin(); home != homes_.end();) {
        if (home->first < start + size && start < home->first + home->second.size) {
            ::close(home->second.fd);
            home = homes_.erase(home);
        } else {
            ++home;
        }
    }
}

int DeviceMemory::settle(std::uint64_t start, std::size_t size) {
    const int fd = ::memfd_create("memory of a fake device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return -1;
    }
    if (::ftruncate(fd, static_cast<off_t>(size)) != 0) {
        ::close(fd);
        return -1;
    }
    forget_homes(start, size);
    homes_.emplace(start, Home{.size = size, .fd = fd});
    map(bytes(start), size, fd);
    if (visible(start)) {
        map(reinterpret_cast<void*>(start), size, fd);
    }
    return fd;
}

int DeviceMemory::share(std::uint64_t start, std::size_t size) {
    if (const auto home = homes_.find(start); home != homes_.end() && home->second.size == size) {
        return ::fcntl(home->second.fd, F_DUPFD_CLOEXEC, 0);
    }
    const std::vector<std::byte> held(bytes(start), bytes(start) + size);
    const int fd = settle(start, size);
    if (fd < 0) {
        return -1;
    }
    std::memcpy(bytes(start), held.data(), size);
    return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

} // namespace fake_driver
