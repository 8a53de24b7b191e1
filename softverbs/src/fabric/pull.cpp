// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/pull.hpp"

#include <sys/uio.h>

#include <array>
#include <cerrno>
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

bool finds_cookie(pid_t pid, const Message& message) noexcept {
    // A PID of 0 means that the process is in a PID namespace that this process cannot see. The
    // memory of such a process cannot be read.
    std::array<std::byte, cookie_bytes> found{};
    return pid > 0 && read_process(pid, message.address, found) == 0 && found == message.cookie;
}

int read_process(pid_t pid, std::uint64_t address, std::span<std::byte> into) noexcept {
    while (!into.empty()) {
        const iovec local{.iov_base = into.data(), .iov_len = into.size()};
        const iovec remote{.iov_base = reinterpret_cast<void*>(address), .iov_len = into.size()};
        // Use a loop, because process_vm_readv(2) reads fewer bytes than requested if a page is not
        // mapped or if the length exceeds 2 GiB.
        const ssize_t read = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (read < 0) {
            // Report EINVAL as EFAULT, and all errnos that are not listed here as EPERM, for
            // example ENOSYS (the kernel does not have the system call) and EACCES (a seccomp
            // filter can return it).
            return errno == EFAULT || errno == ESRCH || errno == ENOMEM ? errno
                   : errno == EINVAL                                    ? EFAULT
                                                                        : EPERM;
        }
        if (read == 0) {
            return EFAULT;
        }
        into = into.subspan(static_cast<std::size_t>(read));
        address += static_cast<std::uint64_t>(read);
    }
    return 0;
}

bool write_process(pid_t pid, std::uint64_t address, std::span<const std::byte> bytes) noexcept {
    constexpr std::size_t last = 8;
    const std::size_t before = bytes.size() > last ? bytes.size() - last : 0;
    // The const_cast is safe, because process_vm_writev(2) does not modify the local buffers.
    auto* const from = const_cast<std::byte*>(bytes.data());
    const std::array<iovec, 2> local{
        iovec{.iov_base = from, .iov_len = before},
        iovec{.iov_base = from + before, .iov_len = bytes.size() - before}};
    const std::array<iovec, 2> remote{
        iovec{.iov_base = reinterpret_cast<void*>(address), .iov_len = before},
        iovec{.iov_base = reinterpret_cast<void*>(address + before),
              .iov_len = bytes.size() - before}};
    return ::process_vm_writev(pid, local.data(), local.size(), remote.data(), remote.size(), 0) ==
           static_cast<ssize_t>(bytes.size());
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
