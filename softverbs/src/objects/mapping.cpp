// SPDX-License-Identifier: BSD-3-Clause
#include "objects/mapping.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "objects/process.hpp"

namespace softverbs {
namespace {

using Registry = std::multimap<FileIdentity, std::unique_ptr<Mapping>>;

/// All mappings of dma-bufs and memfds. The object is never destroyed, because threads may use
/// mappings while the process exits.
Registry& registry() {
    static auto* const mappings = new Registry;
    return *mappings;
}

std::uint32_t next_id() {
    static std::uint32_t last = 0;
    if (++last == 0) {
        ++last;
    }
    return last;
}

struct Descriptor {
    int fd = -1;
    FileIdentity identity;
    std::size_t length = 0;
    bool is_dmabuf = false;
    bool open_for_writing = false;
};

/// Returns true if the link /proc/self/fd/<fd> names a memfd, or cannot be read, for example
/// because /proc is not mounted.
bool is_named_as_memfd(int fd) {
    std::array<char, 32> path{};
    std::array<char, 16> target{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
    const ssize_t length = ::readlink(path.data(), target.data(), target.size());
    return length < 0 ||
           std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with("/memfd:");
}

/// Stores the properties of the file descriptor of a dma-buf or memfd in @p out. Returns 0 or an
/// errno.
int describe_descriptor(int fd, Descriptor& out) {
    struct stat status {};
    struct statfs system {};
    // Reject O_PATH file descriptors, as the kernel does when it imports a dma-buf.
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_PATH) != 0) {
        return EBADF;
    }
    if (::fstat(fd, &status) != 0 || ::fstatfs(fd, &system) != 0) {
        return EINVAL;
    }
    out = {.fd = fd,
           .identity = {status.st_dev, status.st_ino},
           .length = 0,
           .is_dmabuf = system.f_type == DMA_BUF_MAGIC,
           .open_for_writing = (flags & O_ACCMODE) == O_RDWR};
    if (out.is_dmabuf) {
        const off_t end = ::lseek(fd, 0, SEEK_END); // does not move the file position of a dma-buf
        out.length = end > 0 ? static_cast<std::size_t>(end) : 0;
        return end > 0 ? 0 : EINVAL;
    }
    // A memfd has seals, a link count of 0, and a name with the prefix "/memfd:" in /proc/self/fd.
    // Other files in tmpfs also have seals, but not both of the other properties.
    if (!S_ISREG(status.st_mode) || status.st_nlink != 0 || ::fcntl(fd, F_GET_SEALS) < 0 ||
        !is_named_as_memfd(fd)) {
        return EINVAL;
    }
    out.length = static_cast<std::size_t>(status.st_size);
    if (out.length == 0) {
        return EINVAL;
    }
    return (flags & O_ACCMODE) == O_WRONLY ? EACCES : 0;
}

Mapping* find(const Descriptor& descriptor, bool writable) {
    const auto [first, last] = registry().equal_range(descriptor.identity);
    for (auto entry = first; entry != last; ++entry) {
        // Use an existing mapping only if it has the same length as the memory. A memfd may have
        // grown since it was mapped.
        if (entry->second->writable == writable && entry->second->length == descriptor.length) {
            return entry->second.get();
        }
    }
    return nullptr;
}

/// Maps the memory of entry->fd and adds the mapping to the list of all mappings. On failure,
/// returns null and sets errno.
Mapping* enter(std::unique_ptr<Mapping> entry) {
    const int protection = entry->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    // Call mmap(2) through syscall(2), because Process::lock is held. The program may intercept the
    // mmap() of the C library and call verbs there, which would deadlock.
    const long data =
        ::syscall(SYS_mmap, nullptr, entry->length, protection, MAP_SHARED, entry->fd, off_t{0});
    if (data == -1) {
        return nullptr;
    }
    entry->data = reinterpret_cast<std::byte*>(data);
    entry->id = next_id();
    entry->users = 1;
    try {
        return registry().emplace(entry->identity, std::move(entry))->second.get();
    } catch (const std::bad_alloc&) {
        const Unlocked unlocked; // the destructor calls munmap(), where a program may call verbs
        entry.reset();
        return fail(ENOMEM);
    }
}

/// Returns an existing mapping of the memory, or creates one. Adds one to the number of its users.
/// On failure, returns null and sets errno.
Mapping* map(const Descriptor& descriptor, bool writable) {
    if (Mapping* const mapping = find(descriptor, writable)) {
        retain(*mapping);
        return mapping;
    }
    auto entry = std::make_unique<Mapping>();
    entry->fd = duplicate(descriptor.fd);
    if (entry->fd < 0) {
        return nullptr;
    }
    entry->length = descriptor.length;
    entry->writable = writable;
    entry->is_dmabuf = descriptor.is_dmabuf;
    entry->identity = descriptor.identity;
    return enter(std::move(entry));
}

} // namespace

Mapping::~Mapping() {
    if (data != nullptr) {
        ::munmap(data, length);
    }
    if (fd >= 0) {
        ::close(fd);
    }
}

std::optional<FileIdentity> identity_of(int fd) noexcept {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? std::optional(FileIdentity{status.st_dev, status.st_ino})
                                     : std::nullopt;
}

std::size_t length_of_descriptor(int fd) noexcept {
    Descriptor descriptor{};
    if (const int error = describe_descriptor(fd, descriptor); error != 0) {
        errno = error;
        return 0;
    }
    return descriptor.length;
}

Mapping* map_descriptor(int fd, bool write) {
    Descriptor descriptor{};
    if (const int error = describe_descriptor(fd, descriptor); error != 0) {
        return fail(error);
    }
    if (process().faults.dmabufs_unmappable()) {
        return fail(EINVAL);
    }
    // Map the memory for writing if the file descriptor permits this, even for a region without
    // write access. Regions with and without write access can then share the mapping.
    Mapping* mapping = descriptor.open_for_writing ? map(descriptor, true) : nullptr;
    // Map the memory read-only if the file descriptor is read-only, or if the memfd has
    // F_SEAL_WRITE. With this seal, the mapping for writing has failed with EPERM.
    if (mapping == nullptr && (!descriptor.open_for_writing || errno == EPERM)) {
        mapping = map(descriptor, false);
    }
    if (mapping == nullptr) {
        const bool as_it_is = errno == ENOMEM || errno == EMFILE || errno == EACCES;
        return fail(as_it_is ? errno : EINVAL);
    }
    if (write && !mapping->writable) {
        release(mapping);
        return fail(EACCES);
    }
    if (!descriptor.is_dmabuf) {
        static_cast<void>(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    }
    return mapping;
}

Mapping* make_memory(const char* name, std::size_t length) {
    auto entry = std::make_unique<Mapping>();
    entry->length = length;
    entry->fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (entry->fd < 0 || ::ftruncate(entry->fd, static_cast<off_t>(length)) != 0 ||
        ::fcntl(entry->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        return nullptr;
    }
    entry->identity = identity_of(entry->fd).value_or(FileIdentity{});
    return enter(std::move(entry));
}

void retain(Mapping& mapping) noexcept {
    ++mapping.users;
}

void release(Mapping* mapping) noexcept {
    if (mapping == nullptr || --mapping->users != 0) {
        return;
    }
    process().engine.unshare(mapping->id);
    const auto [first, last] = registry().equal_range(mapping->identity);
    for (auto entry = first; entry != last; ++entry) {
        if (entry->second.get() == mapping) {
            std::unique_ptr<Mapping> last_use = std::move(entry->second);
            registry().erase(entry);
            const Unlocked unlocked;
            last_use.reset();
            return;
        }
    }
}

int duplicate(int fd) noexcept {
    return ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

} // namespace softverbs
