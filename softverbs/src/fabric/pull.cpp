// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/pull.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "fabric/clock.hpp"
#include "fabric/environment.hpp"
#include "fabric/random.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::fabric {

Cookie::Cookie() noexcept {
    if (!fill_random(std::as_writable_bytes(std::span(bytes_)))) {
        // If getrandom(2) fails, use the time. The bytes of the cookie need not be secret. They
        // must only differ from the bytes at the same address in other processes.
        const std::uint64_t now = now_ns();
        static_assert(sizeof now <= cookie_bytes);
        std::memcpy(bytes_.data(), &now, sizeof now);
    }
}

void Cookie::store_in(Message& message) const noexcept {
    message.address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    message.cookie = bytes_;
}

namespace {

/// Up to this number of bytes, reading /proc/<pid>/mem takes about as long as process_vm_readv(2).
constexpr std::size_t longest_file_read = std::size_t{64} << 10U;

int error_of_access() noexcept {
    // Report all errnos that are not listed here as EPERM, for example EACCES (a seccomp filter can
    // return it).
    return errno == EFAULT || errno == EIO || errno == EINVAL ? EFAULT
           : errno == ESRCH || errno == ENOMEM                ? errno
                                                              : EPERM;
}

// read_file() and write_file() use syscall(2), because pread(2) and pwrite(2) are cancellation
// points, which ibv_post_send() must not be.

int read_file(int file, std::uint64_t address, std::span<std::byte> into) noexcept {
    while (!into.empty()) {
        const long read = ::syscall(SYS_pread64, file, into.data(), into.size(), address);
        if (read <= 0) {
            return read == 0 ? ESRCH : error_of_access(); // 0: the memory no longer exists
        }
        into = into.subspan(static_cast<std::size_t>(read));
        address += static_cast<std::uint64_t>(read);
    }
    return 0;
}

bool write_file(int file, std::uint64_t address, std::span<const std::byte> bytes) noexcept {
    return bytes.empty() || ::syscall(SYS_pwrite64, file, bytes.data(), bytes.size(), address) ==
                                static_cast<long>(bytes.size());
}

int read_process(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept {
    while (!into.empty()) {
        const iovec local{.iov_base = into.data(), .iov_len = into.size()};
        const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = into.size()};
        // Use a loop, because process_vm_readv(2) reads fewer bytes than requested if a page is not
        // mapped or if the length exceeds 2 GiB.
        const ssize_t read = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (read <= 0) {
            return read == 0 ? EFAULT : error_of_access();
        }
        into = into.subspan(static_cast<std::size_t>(read));
        address += static_cast<std::uint64_t>(read);
    }
    return 0;
}

} // namespace

void ProcessMemory::open(pid_t pid, const Message& message) noexcept {
    // A PID of 0 means that the process is in a PID namespace that this process cannot see. The
    // memory of such a process cannot be accessed.
    if (pid <= 0) {
        return;
    }
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/%d/mem", static_cast<int>(pid));
    file_.reset(static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.data(), O_RDWR | O_CLOEXEC)));
    pid_ = pid;
    cookie_at_ = message.address;
    cookie_ = message.cookie;
    if (file_ && !has_cookie()) {
        file_.reset();
    }
}

bool ProcessMemory::has_cookie() const noexcept {
    std::array<std::byte, cookie_bytes> found{};
    return read_file(file_.get(), cookie_at_, found) == 0 && found == cookie_;
}

int ProcessMemory::read(std::uint64_t address, std::span<std::byte> into) const noexcept {
    if (into.size() <= longest_file_read) {
        return read_file(file_.get(), address, into);
    }
    // process_vm_readv(2) copies long ranges in half the time of a read from /proc/<pid>/mem, but
    // the kernel may have given the PID to another process. Therefore check after the copy that the
    // cookie can still be read from /proc/<pid>/mem: then the process has not ended, and the PID
    // was correct.
    const int error = read_process(pid_, address, into);
    return error == 0 && !has_cookie() ? ESRCH : error;
}

bool ProcessMemory::write(std::uint64_t address, RecordParts parts) const noexcept {
    constexpr std::size_t last_bytes = 8;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::size_t size = parts[i].size();
        const bool is_last = i + 1 == parts.size();
        // Programs poll the last bytes to detect that all have arrived. Write these bytes with a
        // separate call: the kernel does not define the order in which one call copies bytes.
        const std::size_t before = is_last && size > last_bytes ? size - last_bytes : 0;
        if (!write_file(file_.get(), address, parts[i].first(before)) ||
            !write_file(file_.get(), address + before, parts[i].subspan(before))) {
            return false;
        }
        address += size;
    }
    return true;
}

bool pull_wanted() {
    const std::string_view value = environment_variable("SOFTVERBS_PULL");
    const std::string_view wanted = value.empty() ? "process_vm" : value;
    if (wanted != "process_vm" && wanted != "none") {
        throw_error(EINVAL, "SOFTVERBS_PULL is \"" + std::string(wanted) +
                                "\"; set it to process_vm or none");
    }
    return wanted == "process_vm";
}

} // namespace softverbs::fabric
