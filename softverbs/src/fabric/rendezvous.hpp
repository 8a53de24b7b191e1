// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <optional>
#include <string>

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Where nodes meet when nobody says: SOFTVERBS_DIR; or softverbs in XDG_RUNTIME_DIR, if that is
/// this user's (after su(1) it is not); or /tmp/softverbs-<uid>.
[[nodiscard]] std::string default_directory();

/// A directory that only this user can enter. Slot N has two files there: N.lock, locked for as
/// long as its process lives, and N.sock, where that process listens.
class Rendezvous {
  public:
    /// Makes the directory where it is missing.
    /// @throws std::system_error EACCES where it belongs to somebody else, or others can enter it;
    ///         ENOTDIR where it is a file or a symbolic link; what open(2) and mkdir(2) say.
    explicit Rendezvous(std::string path);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// The address of a slot's socket; how long it is goes to @p length.
    [[nodiscard]] sockaddr_un address(unsigned slot, socklen_t& length) const noexcept;

    /// Takes the lock of a slot. Empty where a living process has it.
    /// @param create  false: only where the slot's lock is there
    /// @throws std::system_error what openat(2) and fcntl(2) say
    [[nodiscard]] UniqueFd lock(unsigned slot, bool create) const;

    /// Removes a slot's files. For who holds its lock.
    void remove(unsigned slot) const noexcept;

    /// Forgets the directory.
    void close() noexcept { fd_.reset(); }

    /// Removes what killed processes left behind.
    void sweep() const;

  private:
    std::string path_;
    UniqueFd fd_;
};

/// Connects to who listens in a slot, if that is a process of this user. Empty, with errno: ENOENT
/// (nobody has the slot), EACCES (another user has it), EMFILE, ENOMEM, EAGAIN (does not accept
/// now).
[[nodiscard]] UniqueFd dial(const Rendezvous& rendezvous, unsigned slot, pid_t& pid) noexcept;

/// The process at the other end of a socket, if it is one of this user.
[[nodiscard]] std::optional<pid_t> peer_process(int socket) noexcept;

/// A slot of this process: its lock and its listening socket. Removes both in the process that took
/// it, and only there.
class Slot {
  public:
    /// Takes any slot that is free, not always the same one: what was addressed to a process that
    /// is gone should not reach the next one.
    /// @param is_usable  called with the number of a slot that is free; false: another one is tried
    /// @throws std::system_error ENOSPC: all are taken; what the system calls say.
    Slot(
        const Rendezvous& rendezvous, unsigned slots,
        const std::function<bool(unsigned)>& is_usable = [](unsigned) { return true; });
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

    [[nodiscard]] unsigned number() const noexcept { return number_; }
    [[nodiscard]] int listener() const noexcept { return listener_.get(); }
    /// Whether this process took it, rather than a child of that process by fork(2).
    [[nodiscard]] bool mine() const noexcept;
    /// Closes the descriptors and leaves the files.
    void abandon() noexcept;

  private:
    [[nodiscard]] bool take(unsigned slot, const std::function<bool(unsigned)>& is_usable);

    const Rendezvous& rendezvous_;
    unsigned number_ = 0;
    pid_t owner_;
    UniqueFd lock_;
    UniqueFd listener_;
};

} // namespace softverbs::fabric
