// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/rendezvous.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "fabric/clock.hpp"
#include "fabric/environment.hpp"
#include "fabric/random.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::fabric {
namespace {

std::string lock_name(unsigned slot) {
    return std::to_string(slot) + ".lock";
}

std::string socket_name(unsigned slot) {
    return std::to_string(slot) + ".sock";
}

/// Returns the slot in the name of a lock file, such as 7 for "7.lock". Returns no value for the
/// name of another file.
std::optional<unsigned> slot_of(std::string_view name) noexcept {
    unsigned slot = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), slot);
    if (error != std::errc{} || std::string_view(end, name.data() + name.size()) != ".lock") {
        return std::nullopt;
    }
    return slot;
}

/// Returns the end of an error text: a remedy for an errno of openat(2), or "" if none is known.
const char* hint_for(int error) noexcept {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
            return "; free space there, or set SOFTVERBS_DIR to a directory of your own";
        case EROFS:
        case EACCES:
        case EPERM:
            return "; set SOFTVERBS_DIR to a directory that you can write to";
        case EMFILE:
        case ENFILE:
            return "; raise ulimit -n";
        default:
            return "";
    }
}

} // namespace

std::string default_directory() {
    if (const auto directory = environment_variable("SOFTVERBS_DIR"); !directory.empty()) {
        return std::string(directory);
    }
    const std::string runtime(environment_variable("XDG_RUNTIME_DIR"));
    struct stat status {};
    if (!runtime.empty() && ::stat(runtime.c_str(), &status) == 0 && status.st_uid == ::geteuid()) {
        return runtime + "/softverbs";
    }
    return "/tmp/softverbs-" + std::to_string(::geteuid());
}

Rendezvous::Rendezvous(std::string path) : path_(std::move(path)) {
    const std::string where = "the rendezvous directory " + path_;
    if (::mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
        throw_error(errno,
                    where + " cannot be created; set SOFTVERBS_DIR to a directory of your own");
    }
    fd_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd_) {
        const char* const hint =
            errno == ENOTDIR ? " is a file or a symbolic link" : " cannot be opened";
        throw_error(errno, where + hint + "; set SOFTVERBS_DIR to a directory of your own");
    }
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0) {
        throw_error(errno, where + " cannot be examined");
    }
    if (status.st_uid != ::geteuid()) {
        throw_error(EACCES, where + " belongs to user " + std::to_string(status.st_uid) +
                                "; set SOFTVERBS_DIR to a directory of your own");
    }
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
        throw_error(EACCES, where + " can be entered by other users; chmod 700 it");
    }
    // Lock the directory, because systemd-tmpfiles(8) removes old files in /tmp, but not those in a
    // locked directory.
    ::flock(fd_.get(), LOCK_SH | LOCK_NB);
}

sockaddr_un Rendezvous::address(const std::string& name, socklen_t& length) const noexcept {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    constexpr std::size_t longest_name = 32;
    int size = 0;
    // Use the path of the directory if it is absolute and short enough for a socket address.
    // Otherwise use a path in /proc/self/fd, because a relative path would depend on chdir(2).
    if (path_.front() == '/' && path_.size() + 1 + longest_name < sizeof address.sun_path) {
        size = std::snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", path_.c_str(),
                             name.c_str());
    } else {
        size = std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s",
                             fd_.get(), name.c_str());
    }
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) +
                                    static_cast<std::size_t>(size) + 1);
    return address;
}

UniqueFd Rendezvous::listen(const std::string& name) const noexcept {
    socklen_t length = 0;
    const sockaddr_un to = address(name, length);
    // If the process that listened here was killed, its socket file still exists. Remove it first,
    // because this call may change errno.
    ::unlinkat(fd_.get(), name.c_str(), 0);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool listens =
        socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0;
    return listens ? std::move(socket) : UniqueFd();
}

UniqueFd Rendezvous::connect(const std::string& name) const noexcept {
    socklen_t length = 0;
    const sockaddr_un to = address(name, length);
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const bool connected =
        socket && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), length) == 0;
    return connected ? std::move(socket) : UniqueFd();
}

UniqueFd Rendezvous::lock(unsigned slot, bool create) const {
    const std::string name = lock_name(slot);
    const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT : 0);
    // The previous owner of the lock may remove the lock file between openat(2) and flock(2).
    // Therefore check that the locked file is still in the directory, and otherwise try again.
    while (true) {
        UniqueFd file(::openat(fd_.get(), name.c_str(), flags, S_IRUSR | S_IWUSR));
        if (!file) {
            if (errno == ENOENT && !create) {
                return {};
            }
            throw_error(errno, "softverbs cannot open " + path_ + "/" + name + hint_for(errno));
        }
        // The kernel releases this lock when this process and all child processes that have
        // inherited the lock have ended, even if they were killed.
        if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK) {
                return {};
            }
            throw_error(errno, "softverbs cannot lock " + path_ + "/" + name);
        }
        struct stat locked {};
        struct stat named {};
        if (::fstat(file.get(), &locked) == 0 &&
            ::fstatat(fd_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
            locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
            return file;
        }
    }
}

void Rendezvous::remove(unsigned slot) const noexcept {
    // Remove the socket file first and the lock file last, because sweep() finds the socket file of
    // an ended process by the name of the lock file.
    ::unlinkat(fd_.get(), socket_name(slot).c_str(), 0);
    ::unlinkat(fd_.get(), lock_name(slot).c_str(), 0);
}

bool Rendezvous::for_each_file(const std::function<bool(std::string_view)>& function) const {
    // Open the directory again. A file descriptor made by dup(2) would share the file offset of
    // fd_.
    UniqueFd fd(::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(fd ? ::fdopendir(fd.get()) : nullptr,
                                                        ::closedir);
    if (!directory) {
        return false;
    }
    static_cast<void>(fd.release());
    errno = 0;
    while (const dirent* const entry = ::readdir(directory.get())) {
        if (!function(entry->d_name)) {
            return false;
        }
        errno = 0;
    }
    return errno == 0;
}

bool Rendezvous::used() const noexcept {
    return !for_each_file([](std::string_view name) { return !name.ends_with(".lock"); });
}

void Rendezvous::remove_directory() const noexcept {
    struct stat named {};
    struct stat opened {};
    if (::stat(path_.c_str(), &named) == 0 && ::fstat(fd_.get(), &opened) == 0 &&
        named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) {
        ::rmdir(path_.c_str());
    }
}

void Rendezvous::sweep() const {
    for_each_file([this](std::string_view name) {
        if (const auto slot = slot_of(name)) {
            if (const UniqueFd stale = lock(*slot, false)) {
                remove(*slot);
            }
        }
        return true;
    });
}

UniqueFd dial(const Rendezvous& rendezvous, unsigned slot, pid_t& pid) noexcept {
    UniqueFd socket = rendezvous.connect(socket_name(slot));
    if (!socket) {
        // Report ECONNREFUSED as ENOENT: the socket file belonged to a process that was killed, so
        // no process owns this slot now.
        errno = errno == ECONNREFUSED || errno == ENOTSOCK || errno == EPROTOTYPE ? ENOENT
                : errno == ENFILE                                                 ? EMFILE
                : errno == ENOBUFS                                                ? ENOMEM
                                                                                  : errno;
        return {};
    }
    const auto process = peer_process(socket.get());
    if (!process) {
        errno = EACCES;
        return {};
    }
    pid = *process;
    return socket;
}

std::optional<pid_t> peer_process(int socket) noexcept {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0 ||
        credentials.uid != ::geteuid()) {
        return std::nullopt;
    }
    return credentials.pid;
}

namespace {

unsigned some_slot(unsigned slots) noexcept {
    const unsigned fallback = static_cast<unsigned>(::getpid()) * 7919U;
    return random_number(fallback, GRND_NONBLOCK) % slots;
}

} // namespace

Slot::Slot(const Rendezvous& rendezvous, unsigned slots,
           const std::function<bool(unsigned)>& is_usable)
    : rendezvous_(rendezvous), owner_(::getpid()) {
    // Prefer slots below 256, because the program can later select the device profile "efa", whose
    // queue pair numbers contain only 8 bits of the slot.
    constexpr unsigned preferred = 256;
    const unsigned first = some_slot(std::min(slots, preferred));
    // Number of searches for a free slot. One search is not enough: sweep() of another process
    // locks the lock file of each ended process for a moment, so that its slot seems to be in use.
    constexpr int rounds = 3;
    for (int round = 0; round < rounds; ++round) {
        for (unsigned step = 0; step < slots; ++step) {
            if (take((first + step) % slots, is_usable)) {
                return;
            }
        }
        pause_ns(1'000'000);
    }
    throw_error(ENOSPC, "softverbs has no free slot: processes use all " + std::to_string(slots) +
                            " slots in " + rendezvous.path() +
                            ", or other programs use their TCP ports; end some of them, or "
                            "set another SOFTVERBS_DIR or SOFTVERBS_PORT");
}

bool Slot::take(unsigned slot, const std::function<bool(unsigned)>& is_usable) {
    UniqueFd lock = rendezvous_.lock(slot, true);
    if (!lock) {
        return false;
    }
    if (!is_usable(slot)) {
        rendezvous_.remove(slot);
        return false;
    }
    UniqueFd listener = rendezvous_.listen(socket_name(slot));
    if (!listener) {
        const int error = errno;
        rendezvous_.remove(slot);
        throw_error(error, "softverbs cannot listen on the socket " + rendezvous_.path() + "/" +
                               socket_name(slot) + "; set SOFTVERBS_DIR to another directory");
    }
    number_ = slot;
    lock_ = std::move(lock);
    listener_ = std::move(listener);
    return true;
}

Slot::~Slot() {
    if (lock_ && mine()) {
        rendezvous_.remove(number_);
    }
}

bool Slot::mine() const noexcept {
    return ::getpid() == owner_;
}

void Slot::abandon() noexcept {
    listener_.reset();
    lock_.reset();
}

} // namespace softverbs::fabric
