// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <optional>
#include <string>

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// The rendezvous directory if the program specifies none: SOFTVERBS_DIR if set; otherwise
/// $XDG_RUNTIME_DIR/softverbs if XDG_RUNTIME_DIR belongs to this user (after su(1) it may not);
/// otherwise /tmp/softverbs-<uid>.
[[nodiscard]] std::string default_directory();

/// The rendezvous directory, which only this user can enter. Each slot N has two files: N.lock,
/// which its process keeps locked until it ends, and N.sock, on which that process listens.
class Rendezvous {
  public:
    /// Opens the directory, and creates it if it does not exist.
    /// @throws std::system_error  EACCES (it belongs to another user, or other users can enter it),
    ///         ENOTDIR (it is a file or a symbolic link), and the errors of open(2) and mkdir(2)
    explicit Rendezvous(std::string path);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// Returns the address of a slot's socket, and stores its length in @p length.
    [[nodiscard]] sockaddr_un address(unsigned slot, socklen_t& length) const noexcept;

    /// Locks a slot. Returns an empty descriptor if a running process holds the lock.
    /// @param create  whether to create the lock file if it does not exist
    /// @throws std::system_error  the errors of openat(2) and flock(2)
    [[nodiscard]] UniqueFd lock(unsigned slot, bool create) const;

    /// Removes the files of a slot. The caller must hold its lock.
    void remove(unsigned slot) const noexcept;

    /// Closes the directory.
    void close() noexcept { fd_.reset(); }

    /// Removes the files of slots whose processes have ended.
    void sweep() const;

  private:
    std::string path_;
    UniqueFd fd_;
};

/// Connects to the process with the number @p slot on this host, and stores its PID in @p pid.
/// Returns an empty descriptor and sets errno on failure: ENOENT (no process has the slot), EACCES
/// (its process belongs to another user), EMFILE, ENOMEM, EAGAIN (its listen queue is full).
[[nodiscard]] UniqueFd dial(const Rendezvous& rendezvous, unsigned slot, pid_t& pid) noexcept;

/// Returns the PID of the process at the other end of a Unix socket, or nothing if it belongs to
/// another user.
[[nodiscard]] std::optional<pid_t> peer_process(int socket) noexcept;

/// A slot that this process owns: its lock and its listening socket. The destructor removes their
/// files, but not in a child by fork(2).
class Slot {
  public:
    /// Takes a free slot, starting at a random one, so that a message to a process that has ended
    /// is unlikely to reach a new process with the same slot.
    /// @param is_usable  called with the number of each free slot; if it returns false, the next
    ///         slot is tried
    /// @throws std::system_error  ENOSPC (all slots are in use), and the errors of the system calls
    Slot(
        const Rendezvous& rendezvous, unsigned slots,
        const std::function<bool(unsigned)>& is_usable = [](unsigned) { return true; });
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

    [[nodiscard]] unsigned number() const noexcept { return number_; }
    [[nodiscard]] int listener() const noexcept { return listener_.get(); }
    /// Returns whether this process owns the slot; false in a child by fork(2).
    [[nodiscard]] bool mine() const noexcept;
    /// Closes the descriptors without removing the files.
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
