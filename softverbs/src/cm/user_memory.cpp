// SPDX-License-Identifier: BSD-3-Clause
#include "cm/user_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace softverbs::cm {

namespace {

/// Evaluates the result of process_vm_readv(2) or process_vm_writev(2). Returns whether all bytes
/// were copied. Unlike memcpy(3), these calls detect invalid addresses without SIGSEGV. A
/// seccomp(2) filter may forbid them with any errno; then this function copies with memcpy(3).
bool copied(ssize_t moved, std::size_t size, void* to, const void* from) noexcept {
    if (moved < 0 && errno != EFAULT && errno != ENOMEM) {
        std::memcpy(to, from, size);
        return true;
    }
    return moved == static_cast<ssize_t>(size);
}

} // namespace

bool copy_from_user(void* to, const void* from, std::size_t size) noexcept {
    const iovec local{to, size};
    const iovec remote{const_cast<void*>(from), size};
    return size == 0 ||
           copied(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0), size, to, from);
}

bool copy_to_user(std::uint64_t to, const void* from, std::size_t size) noexcept {
    auto* const target = reinterpret_cast<void*>(to);
    const iovec local{const_cast<void*>(from), size};
    const iovec remote{target, size};
    return size == 0 ||
           copied(::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0), size, target, from);
}

} // namespace softverbs::cm
