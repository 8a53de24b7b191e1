// SPDX-License-Identifier: BSD-3-Clause
#include "objects/object_table.hpp"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <span>

#include "fabric/unique_fd.hpp"

namespace softverbs {

namespace {

using Kind = SharedObject::Kind;

constexpr std::array<char, 16> magic{'s', 'o', 'f', 't', 'v', 'e', 'r', 'b',
                                     's', ' ', 'd', 'e', 'v', 'i', 'c', 'e'};
/// Size of the file in bytes. Its pages take memory only when they are written.
constexpr std::size_t table_size = std::size_t{4} << 20U;

struct Header {
    std::array<char, 16> magic;
    std::uint32_t device;
    pid_t owner;
    /// Number of entries that have been used.
    std::atomic<std::uint32_t> count;
};
constexpr std::size_t header_size = 64;
static_assert(sizeof(Header) <= header_size);
constexpr std::size_t most_objects = (table_size - header_size) / sizeof(SharedObject);

Header& header_of(const fabric::Mapping& memory) noexcept {
    return *reinterpret_cast<Header*>(memory.bytes());
}

std::span<SharedObject> entries_of(const fabric::Mapping& memory) noexcept {
    // Another process can change the header, so limit the number of entries.
    const std::size_t count = header_of(memory).count.load(std::memory_order_acquire);
    return {reinterpret_cast<SharedObject*>(memory.bytes() + header_size),
            std::min(count, most_objects)};
}

} // namespace

int ObjectTable::create(unsigned device) noexcept {
    fabric::UniqueFd fd(::memfd_create("softverbs-device", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    Header header{};
    header.magic = magic;
    header.device = device;
    header.owner = ::getpid();
    if (!fd || ::ftruncate(fd.get(), table_size) != 0) {
        return -1;
    }
    if (::pwrite(fd.get(), &header, sizeof header, 0) != sizeof header) {
        errno = errno == 0 ? ENOMEM : errno;
        return -1;
    }
    ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd.release();
}

std::optional<unsigned> ObjectTable::device_of(int fd) noexcept {
    Header header{};
    // First check that the file supports seals, as a memfd does: such a file is in memory. Another
    // kind of file must not be read, because pread(2) could block or consume data.
    if (::fcntl(fd, F_GET_SEALS) < 0 || ::pread(fd, &header, sizeof header, 0) != sizeof header ||
        header.magic != magic) {
        return std::nullopt;
    }
    return header.device;
}

ObjectTable::ObjectTable(int fd) noexcept : memory_(fd, table_size, PROT_READ | PROT_WRITE) {
    if (memory_) {
        owner_ = header_of(memory_).owner;
        used_ = static_cast<std::uint32_t>(entries_of(memory_).size());
    }
}

bool ObjectTable::is_owner() const noexcept {
    return memory_ && owner_ == ::getpid();
}

SharedObject* ObjectTable::add(Kind kind, std::uint32_t handle,
                               const SharedMemory& memory) noexcept {
    if (!is_owner()) {
        return nullptr;
    }
    const bool reuses = !free_.empty();
    if (!reuses) {
        if (used_ == most_objects) {
            return nullptr;
        }
        try { // remove() must be able to add any entry to free_ without an allocation
            if (free_.capacity() <= used_) {
                free_.reserve(std::size_t{2} * used_ + 16);
            }
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    auto* const all = reinterpret_cast<SharedObject*>(memory_.bytes() + header_size);
    SharedObject& object = all[reuses ? free_.back() : used_];
    object.handle = handle;
    object.memory = memory;
    object.kind.store(kind, std::memory_order_release);
    if (reuses) {
        free_.pop_back();
    } else {
        header_of(memory_).count.store(++used_, std::memory_order_release);
    }
    return &object;
}

void ObjectTable::remove(SharedObject* object) noexcept {
    if (object == nullptr || !is_owner()) {
        return;
    }
    const bool is_domain = object->kind == Kind::pd;
    object->kind.store(Kind::none, std::memory_order_release);
    // Do not use the entry of a protection domain again: a process that has imported the domain may
    // still change SharedObject::users.
    if (!is_domain) {
        const auto* const all = reinterpret_cast<SharedObject*>(memory_.bytes() + header_size);
        free_.push_back(static_cast<std::uint32_t>(object - all));
    }
}

SharedObject* ObjectTable::find(Kind kind, std::uint32_t handle) const noexcept {
    if (!memory_) {
        return nullptr;
    }
    const std::span all = entries_of(memory_);
    const auto found = std::ranges::find_if(all, [=](const SharedObject& object) {
        return object.kind.load(std::memory_order_acquire) == kind && object.handle == handle;
    });
    return found != all.end() ? &*found : nullptr;
}

bool is_used_by_others(const SharedObject& domain) noexcept {
    const pid_t importer = domain.importer;
    return domain.users != 0 && importer > 0 && (::kill(importer, 0) == 0 || errno != ESRCH);
}

int open_memory(pid_t owner, const SharedMemory& memory) noexcept {
    if (memory.fd < 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    std::array<char, 48> path{};
    std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", owner, memory.fd);
    int fd = ::open(path.data(), O_RDWR | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
    }
    struct stat status {};
    if (fd < 0 || ::fstat(fd, &status) != 0 || status.st_ino != memory.inode) {
        const bool exhausted = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
        const int error = exhausted ? errno : EOPNOTSUPP;
        if (fd >= 0) {
            ::close(fd);
        }
        errno = error;
        return -1;
    }
    return fd;
}

} // namespace softverbs
