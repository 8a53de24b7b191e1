// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// Returns the default directory in which the processes of this host find each other: the value of
/// SOFTVERBS_DIR if it is set; otherwise $XDG_RUNTIME_DIR/softverbs if the directory
/// $XDG_RUNTIME_DIR belongs to this user; otherwise /tmp/softverbs-<uid>.
[[nodiscard]] std::string default_directory();

/// The rendezvous directory, in which the processes of a host find each other. Only the user who
/// owns the directory can enter it. The process in slot N has two files in the directory: the lock
/// file N.lock, which the process keeps locked until it ends, and the socket N.sock, on which it
/// listens.
class Rendezvous {
  public:
    /// Opens the directory. Creates it if it does not exist.
    /// @throws std::system_error  EACCES (the directory belongs to another user, or other users can
    ///     enter it), ENOTDIR (it is a file or a symbolic link), or the error of a system call
    explicit Rendezvous(std::string path);

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// Creates a non-blocking socket that listens on the file @p name in the directory, and
    /// replaces a file that exists. The name has at most 32 characters. On failure, returns an
    /// empty UniqueFd and sets errno.
    [[nodiscard]] UniqueFd listen(const std::string& name) const noexcept;
    /// Connects a non-blocking socket to the socket file @p name in the directory. On failure,
    /// returns an empty UniqueFd and sets errno.
    [[nodiscard]] UniqueFd connect(const std::string& name) const noexcept;

    /// Calls @p function with the name of each file in the directory, until it returns false.
    /// Returns whether all files were listed.
    bool for_each_file(const std::function<bool(std::string_view)>& function) const;

    /// Locks the lock file of the slot @p slot and returns its file descriptor. Returns an empty
    /// UniqueFd if another process holds the lock, or if the file does not exist and @p create is
    /// false.
    /// @param create  whether to create the lock file if it does not exist
    /// @throws std::system_error  the error of openat(2) or flock(2)
    [[nodiscard]] UniqueFd lock(unsigned slot, bool create) const;

    /// Removes the lock file and the socket of the slot @p slot. The caller must hold the lock on
    /// the lock file.
    void remove(unsigned slot) const noexcept;

    /// Returns whether a process may be using the directory: true if the directory contains a lock
    /// file or cannot be read.
    [[nodiscard]] bool used() const noexcept;
    /// Removes the directory if it is empty. Does nothing if path() no longer refers to this
    /// directory, which is possible for a relative path after chdir(2).
    void remove_directory() const noexcept;

    /// Called in a child process after fork(2). Closes the inherited file descriptor of the
    /// directory.
    void close() noexcept { fd_.reset(); }

    /// Removes the lock files and sockets of all processes that have ended.
    void sweep() const;

  private:
    /// Returns the address of the socket file @p name, and stores its length in @p length.
    [[nodiscard]] sockaddr_un address(const std::string& name, socklen_t& length) const noexcept;

    std::string path_;
    UniqueFd fd_;
};

/// Connects to the process in slot @p slot of this host, and stores its PID in @p pid. On failure,
/// returns an empty UniqueFd and sets errno: ENOENT (no process owns this slot), EACCES (the
/// process belongs to another user), EMFILE, ENOMEM, EAGAIN (the listen queue of the process is
/// full).
[[nodiscard]] UniqueFd dial(const Rendezvous& rendezvous, unsigned slot, pid_t& pid) noexcept;

/// Returns the PID of the process at the other end of a Unix socket. Returns no value if that
/// process belongs to another user or getsockopt(2) fails.
[[nodiscard]] std::optional<pid_t> peer_process(int socket) noexcept;

/// The slot of this process on this host, with its lock file and its listening socket. The
/// destructor removes these two files, except in a child process after fork(2).
class Slot {
  public:
    /// Takes a free slot. The search starts at a random slot: otherwise, a new process would often
    /// get the slot of a process that has just ended, and would receive messages for that process.
    /// @param slots  how many slots exist; the first is 0
    /// @param is_usable  called for each free slot; if it returns false, the search continues
    /// @throws std::system_error  ENOSPC (all slots are in use), or the error of a system call
    Slot(
        const Rendezvous& rendezvous, unsigned slots,
        const std::function<bool(unsigned)>& is_usable = [](unsigned) { return true; });
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

    [[nodiscard]] unsigned number() const noexcept { return number_; }
    [[nodiscard]] int listener() const noexcept { return listener_.get(); }
    /// Returns whether the slot belongs to this process. Returns false in a child process after
    /// fork(2), because the slot belongs to the parent process.
    [[nodiscard]] bool mine() const noexcept;
    /// Called in a child process after fork(2). Closes the file descriptors, but does not remove
    /// the lock file and the socket, which belong to the parent process.
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
