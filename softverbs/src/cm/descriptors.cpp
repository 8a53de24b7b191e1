// SPDX-License-Identifier: BSD-3-Clause
#include "cm/descriptors.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <new>

#include "cm/commands.hpp"
#include "cm/manager.hpp"
#include "cm/user_cm.hpp"
#include "fabric/clock.hpp"
#include "fabric/scheduling_state.hpp"
#include "fabric/uncancellable.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

constinit std::array<std::atomic<ChannelFile*>, max_descriptor + 1> files_by_descriptor{};

namespace {

/// The device number for fstat(2) if the kernel has no rdma_cm device: major number 10 (misc
/// devices), with a minor number from the dynamic range.
constexpr unsigned misc_major = 10;
constexpr unsigned some_dynamic_minor = 58;

/// Returns an empty ChannelFile. In a child process after fork(2), it replaces the event channels
/// of the parent process in files_by_descriptor.
ChannelFile& orphans() noexcept {
    // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): a failure ends the process
    static auto* const one = new ChannelFile;
    return *one;
}

std::atomic<ChannelFile*>& entry(int descriptor) noexcept {
    return files_by_descriptor[static_cast<std::size_t>(descriptor)];
}

/// Removes a descriptor from its ChannelFile (event channel). Returns the ChannelFile if it has no
/// other descriptor; otherwise, returns null.
ChannelFile* remove(int descriptor) noexcept {
    ChannelFile* const file = entry(descriptor).exchange(nullptr);
    if (file == nullptr || file == &orphans()) {
        return nullptr;
    }
    std::erase(file->descriptors, descriptor);
    return file->descriptors.empty() ? file : nullptr;
}

/// Waits until the thread that received the last event of an event channel sleeps, for at most 0.1
/// seconds. Called before a descriptor of the channel is closed; does nothing if the channel has
/// other descriptors, if its descriptor is non-blocking, or if this thread received the last event.
/// Without this, programs such as rping may close the event channel shortly before that thread
/// waits for the next event, and the thread gets an error. With a NIC, the error is rare: the
/// program first destroys a queue pair and memory regions, which takes milliseconds, so the thread
/// already waits. With softverbs, these calls take microseconds.
void wait_for_event_thread(const ChannelFile& file, std::unique_lock<std::mutex>& lock) noexcept {
    const fabric::NoCancellation here;
    constexpr std::uint64_t longest_wait_ns = 100'000'000;
    constexpr long interval_ns = 200'000;
    const pid_t thread = file.event_thread;
    const int descriptor = file.descriptors.front();
    if (thread == 0 || thread == ::gettid() || file.descriptors.size() != 1 ||
        (::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0) {
        return;
    }
    lock.unlock();
    const std::uint64_t end = fabric::now_ns() + longest_wait_ns;
    while (fabric::now_ns() < end && fabric::scheduling_state("/proc/self/task", thread) == 'R') {
        fabric::pause_ns(interval_ns);
    }
    lock.lock();
}

} // namespace

ChannelFile* file_of(int descriptor) noexcept {
    if (!may_be_device(descriptor)) {
        return nullptr;
    }
    ChannelFile* const file = entry(descriptor).load();
    return file == &orphans() ? nullptr : file;
}

bool is_device(int descriptor) {
    if (!may_be_device(descriptor)) {
        return false;
    }
    Manager* const there = existing_manager();
    if (there == nullptr || !there->mine()) {
        return true; // a child by fork(2) or vfork(2) with a descriptor of its parent
    }
    const std::scoped_lock guard(there->lock);
    ChannelFile* const file = entry(descriptor).load();
    if (file == nullptr || file == &orphans()) {
        return file != nullptr;
    }
    if (file->is_referred_to_by(descriptor)) {
        return true;
    }
    if (ChannelFile* const unused = remove(descriptor); unused != nullptr) {
        there->close_file(*unused);
    }
    return false;
}

int open_device(std::string_view path, int flags) {
    static_cast<void>(path);
    const fabric::NoCancellation not_cancelled;
    {
        const Guard guard;
        if (const int error = process().faults.enter("rdma_create_event_channel"); error != 0) {
            errno = error;
            return -1;
        }
    }
    Manager* const there = manager();
    if (there == nullptr) {
        return -1;
    }
    try {
        const std::scoped_lock guard(there->lock);
        ChannelFile* file = nullptr;
        if (const int error = there->open_file(flags, file); error != 0) {
            errno = error;
            return -1;
        }
        const int descriptor = file->descriptors.front();
        if (descriptor > max_descriptor) {
            there->close_file(*file);
            ::close(descriptor);
            errno = EMFILE;
            return -1;
        }
        entry(descriptor).store(file);
        return descriptor;
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
        return -1;
    }
}

ssize_t write_command(int descriptor, const void* buffer, std::size_t size) {
    Command command;
    int error = 0;
    {
        const fabric::NoCancellation not_cancelled;
        error = parse_command(buffer, size, command);
        if (error == 0) {
            error = planned_failure(command);
        }
    }
    if (file_of(descriptor) == nullptr) {
        error = EBADF; // a child by fork(2) with a descriptor of its parent
    }
    const int saved_errno = errno;
    if (error == 0 && command.number == RDMA_USER_CM_CMD_GET_EVENT) {
        do {
            // Wait for an event with read(2) on the socket. O_NONBLOCK, signals and thread
            // cancellation then have the same effects as with the device of the kernel.
            char byte = 0;
            const ssize_t taken = ::read(descriptor, &byte, 1);
            if (taken == 0) {
                // Another thread has closed the last descriptor of the event channel, so no event
                // can arrive. Wait forever: with the kernel's /dev/infiniband/rdma_cm, a thread
                // that waits for an event then also waits forever.
                return ::poll(nullptr, 0, -1);
            }
            if (taken != 1) {
                return -1;
            }
            const fabric::NoCancellation not_cancelled;
            error = execute(descriptor, command);
        } while (error == EAGAIN);
    } else if (error == 0) {
        const fabric::NoCancellation not_cancelled;
        error = execute(descriptor, command);
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    errno = saved_errno;
    return static_cast<ssize_t>(size);
}

void describe_device(struct stat& status) noexcept {
    struct stat kernel {};
    const bool there = ::syscall(SYS_newfstatat, AT_FDCWD, device_path.data(), &kernel, 0) == 0 &&
                       S_ISCHR(kernel.st_mode);
    status.st_mode = S_IFCHR | S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH;
    status.st_rdev = there ? kernel.st_rdev : makedev(misc_major, some_dynamic_minor);
}

void closing(int descriptor) noexcept {
    const fabric::NoCancellation not_cancelled;
    const int saved_errno = errno;
    Manager* const there = existing_manager();
    if (there != nullptr && !there->mine()) {
        // This process was created with vfork(2) and closes its own copy of a descriptor. It runs
        // in the memory of its parent, so it must not change files_by_descriptor and the
        // ChannelFile of the parent.
        return;
    }
    if (there != nullptr && is_device(descriptor)) {
        std::unique_lock guard(there->lock);
        if (const ChannelFile* const file = file_of(descriptor); file != nullptr) {
            wait_for_event_thread(*file, guard);
        }
        if (ChannelFile* const unused = remove(descriptor); unused != nullptr) {
            there->close_file(*unused);
        }
    } else if (there == nullptr) {
        entry(descriptor).store(nullptr);
    }
    errno = saved_errno;
}

void duplicated(int descriptor, int copy) noexcept {
    const int saved_errno = errno;
    Manager* const there = existing_manager();
    if (there != nullptr && there->mine() && copy <= max_descriptor) {
        const std::scoped_lock guard(there->lock);
        if (ChannelFile* const file = file_of(descriptor); file != nullptr) {
            file->descriptors.push_back(copy);
            entry(copy).store(file);
        }
    }
    errno = saved_errno;
}

void forget(ChannelFile& file) noexcept {
    for (const int descriptor : file.descriptors) {
        ChannelFile* expected = &file;
        entry(descriptor).compare_exchange_strong(expected, nullptr);
    }
    file.descriptors.clear();
}

void orphan(const ChannelFile& file) noexcept {
    for (const int descriptor : file.descriptors) {
        entry(descriptor).store(&orphans());
    }
}

} // namespace softverbs::cm
