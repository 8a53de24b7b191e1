// SPDX-License-Identifier: BSD-3-Clause
#include "cm/registry.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "fabric/clock.hpp"
#include "fabric/random.hpp"
#include "fabric/system_error.hpp"

namespace softverbs::cm {

namespace {

constexpr std::uint32_t max_records = 16384;
constexpr std::uint64_t file_magic = 0x3176'7267'7262'6473;
/// Name of the file that contains all bound rdma_cm ports. The name contains the version of struct
/// File, because processes with different versions of softverbs may use the same rendezvous
/// directory.
constexpr const char* file_name = "ports-1";
/// The default range of ephemeral ports in Linux (ip_local_port_range).
constexpr std::uint16_t first_ephemeral = 32768;
constexpr std::uint16_t last_ephemeral = 60999;
constexpr std::uint16_t first_unprivileged = 1024;

std::uint16_t some_port() noexcept {
    const auto random = fabric::random_number(static_cast<std::uint32_t>(::getpid()));
    return static_cast<std::uint16_t>(first_ephemeral +
                                      random % (last_ephemeral - first_ephemeral + 1U));
}

} // namespace

/// A binding of an id, as it is stored in the file. If the member "owner" is 0, the entry is free.
struct Registry::Record {
    std::uint64_t owner;
    Gid address;
    std::uint16_t port_space;
    std::uint16_t port;
    std::uint16_t family;
    std::uint8_t reuse_address;
    std::uint8_t family_only;
    std::uint8_t listening;
    std::uint8_t reserved[7];
};

struct Registry::File {
    std::uint64_t magic;
    std::uint64_t used; // all records from this index on are free
    /// For each slot (0 to 1023): Peer::process of the process that took the slot last. If the
    /// owner of a binding is not in this array, that process has ended, and the binding is free.
    std::uint64_t processes[fabric::max_slots];
    Record records[max_records];
};

/// Locks the file that contains the bound ports. Waits for at most @p attempts milliseconds,
/// because a stopped process may hold the lock.
class Registry::Lock {
  public:
    explicit Lock(int fd, unsigned attempts = 2000)
        : fd_(fd), held_(fabric::retry_every_ms(attempts, [fd] {
              return ::flock(fd, LOCK_EX | LOCK_NB) == 0;
          })) {}
    ~Lock() {
        if (held_) {
            ::flock(fd_, LOCK_UN);
        }
    }
    Lock(Lock&& other) noexcept : fd_(other.fd_), held_(std::exchange(other.held_, false)) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    Lock& operator=(Lock&&) = delete;
    explicit operator bool() const noexcept { return held_; }

  private:
    int fd_;
    bool held_;
};

Registry::Lock Registry::open() {
    const fabric::Rendezvous& directory = exchange_.node().rendezvous();
    const auto check = [&directory](int error) {
        const bool full = error == ENOSPC || error == EDQUOT;
        if (error != 0) {
            fabric::throw_error(error,
                                "the file " + directory.path() + "/" + file_name + " of rdma_cm " +
                                    (full ? "needs " + std::to_string(sizeof(File) / 1024 + 1) +
                                                " KiB; free space there, or set"
                                          : "cannot be opened, locked or mapped; set") +
                                    " SOFTVERBS_DIR to another directory");
        }
    };
    const auto result = [](bool ok) { return ok ? 0 : errno; };
    // Another process may remove the file after this process has opened it and before this process
    // has locked it. If so, try again.
    while (true) {
        fd_.reset(::openat(directory.fd(), file_name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                           S_IRUSR | S_IWUSR));
        check(result(static_cast<bool>(fd_)));
        Lock lock(fd_.get());
        check(lock ? 0 : EAGAIN);
        struct stat status {};
        check(result(::fstat(fd_.get(), &status) == 0));
        if (status.st_nlink == 0) {
            continue;
        }
        if (status.st_size != 0 && static_cast<std::size_t>(status.st_size) != sizeof(File)) {
            // The file has an invalid size. Remove it, and create another one. Do not truncate it:
            // a process that has mapped it would get SIGBUS.
            check(result(::unlinkat(directory.fd(), file_name, 0) == 0));
            continue;
        }
        // Allocate the disk space of the file. Without it, a write to the mapping of the file could
        // raise SIGBUS.
        if (const int error = ::posix_fallocate(fd_.get(), 0, sizeof(File)); error != 0) {
            if (status.st_size == 0) {
                ::unlinkat(directory.fd(), file_name, 0);
            }
            check(error);
        }
        mapping_ = fabric::Mapping(fd_.get(), sizeof(File), PROT_READ | PROT_WRITE);
        check(result(static_cast<bool>(mapping_)));
        return lock;
    }
}

Registry::Registry(const Exchange& exchange) : exchange_(exchange) {
    const Lock lock = open();
    auto* const mapped = reinterpret_cast<File*>(mapping_.bytes());
    file_ = mapped;
    if (file_->magic != file_magic) {
        std::memset(static_cast<void*>(file_), 0, sizeof *file_);
        file_->magic = file_magic;
    }
    const std::uint64_t self = exchange_.self().process;
    file_->processes[self & Peer::slot_mask] = self;
    for (Record& record : records()) {
        if (record.owner != 0 && !valid(record)) {
            record.owner = 0;
        }
    }
    while (file_->used > 0 && file_->used <= max_records &&
           file_->records[file_->used - 1].owner == 0) {
        --file_->used;
    }
}

void Registry::abandon() noexcept {
    fd_.reset();
}

void Registry::release_all() noexcept {
    const std::uint64_t self = exchange_.self().process;
    for (Record& record : file_->records) {
        if (record.owner == self) {
            record.owner = 0;
        }
    }
}

void Registry::remove_unused() const noexcept {
    // The last process that ends removes the file with the bindings. It locks the file first, so
    // that no process begins to use it. Wait for the lock for up to 200 ms: if two processes ended
    // at the same time and neither waited, the file would remain.
    const Lock lock(fd_.get(), 200);
    const fabric::Rendezvous& rendezvous = exchange_.node().rendezvous();
    if (lock && !rendezvous.used()) {
        ::unlinkat(rendezvous.fd(), file_name, 0);
        rendezvous.remove_directory();
    }
}

std::span<Registry::Record> Registry::records() const {
    return {file_->records, std::min<std::size_t>(file_->used, max_records)};
}

bool Registry::valid(const Record& record) const {
    const std::uint64_t slot = record.owner & Peer::slot_mask;
    return record.owner == exchange_.self().process ||
           (slot < fabric::max_slots && file_->processes[slot] == record.owner &&
            exchange_.alive(static_cast<unsigned>(slot)));
}

int Registry::conflict(const Record& wanted, bool reuse) const {
    for (const Record& other : records()) {
        if (other.owner == 0 || &other == &wanted || other.port_space != wanted.port_space ||
            other.port != wanted.port || (reuse && other.reuse_address != 0) ||
            (wanted.family_only != 0 && other.family_only != 0 && wanted.family != other.family)) {
            continue;
        }
        const bool any = is_unspecified(wanted.address, wanted.family) ||
                         is_unspecified(other.address, other.family);
        const bool same = wanted.family == other.family && wanted.address == other.address;
        if ((any || same) && valid(other)) {
            return any ? EADDRNOTAVAIL : EADDRINUSE;
        }
    }
    return 0;
}

bool Registry::port_used(std::uint16_t port_space, std::uint16_t port) const {
    return std::ranges::any_of(records(), [&](const Record& record) {
        return record.owner != 0 && record.port_space == port_space && record.port == port &&
               valid(record);
    });
}

Registry::Record* Registry::free_record() {
    const auto used = records();
    if (const auto free = std::ranges::find(used, 0U, &Record::owner); free != used.end()) {
        return &*free;
    }
    if (file_->used < max_records) {
        return &file_->records[file_->used++];
    }
    const auto stale =
        std::ranges::find_if(used, [this](const Record& record) { return !valid(record); });
    return stale != used.end() ? &*stale : nullptr;
}

int Registry::bind(Binding& binding, Index& index) {
    const Lock lock(fd_.get());
    if (!lock) {
        return EAGAIN;
    }
    Record record{};
    record.owner = exchange_.self().process;
    record.address = binding.address.gid();
    record.port_space = binding.port_space;
    record.port = binding.address.port();
    record.family = binding.address.family();
    record.reuse_address = binding.reuse_address ? 1 : 0;
    record.family_only = binding.family_only ? 1 : 0;
    if (record.port == 0) {
        std::uint16_t port = some_port();
        unsigned tried = 0;
        while (port_used(binding.port_space, port)) {
            if (++tried > last_ephemeral - first_ephemeral) {
                return EADDRNOTAVAIL;
            }
            port = port == last_ephemeral ? first_ephemeral : static_cast<std::uint16_t>(port + 1);
        }
        record.port = port;
    } else if (record.port < first_unprivileged && ::geteuid() != 0) {
        return EACCES;
    } else if (const int error = conflict(record, binding.reuse_address); error != 0) {
        return error;
    }
    Record* const place = free_record();
    if (place == nullptr) {
        return EADDRNOTAVAIL;
    }
    *place = record;
    binding.address.set_port(record.port);
    index = static_cast<Index>(place - file_->records);
    return 0;
}

int Registry::listen(Index index) {
    const Lock lock(fd_.get());
    if (!lock) {
        return EAGAIN;
    }
    Record& record = file_->records[index];
    if (record.reuse_address != 0) {
        if (const int error = conflict(record, false); error != 0) {
            return error;
        }
        // As in the kernel, no other id can bind the address of a listener, even with
        // RDMA_OPTION_ID_REUSEADDR.
        record.reuse_address = 0;
    }
    record.listening = 1;
    return 0;
}

void Registry::set_options(Index index, bool reuse_address, bool family_only) noexcept {
    Record& record = file_->records[index];
    record.reuse_address = reuse_address ? 1 : 0;
    record.family_only = family_only ? 1 : 0;
}

void Registry::release(Index index) noexcept {
    Record& record = file_->records[index];
    if (record.owner == exchange_.self().process) {
        record.owner = 0;
    }
}

std::optional<Peer> Registry::find(std::uint16_t port_space, const Address& destination) const {
    const Lock lock(fd_.get());
    const std::uint16_t port = destination.port();
    const Record* best = nullptr;
    for (const Record& record : records()) {
        if (record.owner == 0 || record.listening == 0 || record.port_space != port_space ||
            record.port != port ||
            !accepts(Address::from_gid(record.address, record.family), record.family_only != 0,
                     destination) ||
            !valid(record)) {
            continue;
        }
        // If two ids listen on the port, the id that is bound to this address has priority over the
        // id that is bound to the unspecified address.
        if (best == nullptr || is_unspecified(best->address, best->family)) {
            best = &record;
        }
    }
    return best != nullptr ? std::optional(Peer{{}, best->owner}) : std::nullopt;
}

bool accepts(const Address& bound, bool family_only, const Address& destination) {
    if (bound.is_unspecified()) {
        return bound.family() == destination.family() || bound.family() == family_ib ||
               (bound.family() == AF_INET6 && !family_only);
    }
    return same_host(bound, destination);
}

} // namespace softverbs::cm
