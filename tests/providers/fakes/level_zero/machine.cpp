// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "fake_level_zero.hpp"

namespace fake_level_zero {
namespace {

using fake_driver::Allocation;
using fake_driver::Machine;

constexpr unsigned uninitialized = 0x78000001;
constexpr unsigned unsupported_feature = 0x78000003;

bool kept_was_closed = false;

/// Returns the inode of an open file, 0 if the descriptor is closed.
ino_t file_of(int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

/// The descriptor that the driver keeps for an allocation.
class Kept {
  public:
    Kept() = default;
    ~Kept() { close(); }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

    /// Notes whether the program has closed the descriptor, or opened another file as it.
    void check() {
        if (fd_ >= 0 && file_of(fd_) != file_) {
            kept_was_closed = true;
            fd_ = -1;
        }
    }
    void open(int fd) {
        fd_ = fd;
        file_ = file_of(fd);
    }
    void close() {
        check();
        if (fd_ >= 0) {
            ::close(std::exchange(fd_, -1));
        }
    }
    [[nodiscard]] int fd() const noexcept { return fd_; }

  private:
    int fd_ = -1;
    ino_t file_ = 0;
};

Kept& kept_of(Allocation& allocation) {
    if (!allocation.state) {
        allocation.state = std::make_shared<Kept>();
    }
    return *static_cast<Kept*>(allocation.state.get());
}

} // namespace

int keep_descriptor(std::uint64_t address) {
    Machine& machine = Machine::get();
    Allocation& allocation = machine.allocations.at(address);
    Kept& kept = kept_of(allocation);
    kept.check();
    int fd = -1;
    if (kept.fd() < 0 &&
        machine.share(allocation.block, machine.blocks.at(allocation.block).size, &fd)) {
        kept.open(fd);
    }
    return kept.fd();
}

int kept_descriptor(std::uint64_t address) {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    return kept_of(machine.allocations.at(address)).fd();
}

bool kept_descriptor_was_closed() {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    for (auto& [start, allocation] : machine.allocations) {
        kept_of(allocation).check();
    }
    return kept_was_closed;
}

} // namespace fake_level_zero

const fake_driver::Vendor& fake_driver::vendor() {
    using namespace fake_level_zero;
    static const Vendor level_zero{
        .uninitialised = uninitialized,
        .attributes = {{device_type, 1}, {export_types, 2}, {host_type, 1}},
        .settings = {{Setting::undescribed_result, unsupported_feature}},
        .one_context = true,
        .reset = [] { kept_was_closed = false; },
    };
    return level_zero;
}
