// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>

namespace fake_habana {

Machine& Machine::get() {
    static auto* const machine = new Machine;
    return *machine;
}

void Machine::reset(unsigned count) {
    memory.reset();
    script = {};
    faults = {};
    devices = count;
    while (!open.empty()) {
        close_device(open.begin()->first);
    }
    mappings.clear();
    exported = 0;
    initialised = false;
    acquired = -1;
    pool = 0;
    buffers.clear();
    stream = nullptr;
}

int Machine::open_device(abi::DeviceName name) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        open.emplace(fd, name);
    }
    return fd;
}

void Machine::close_device(int fd) {
    ::close(fd);
    open.erase(fd);
}

std::uint64_t Machine::map(std::size_t size) {
    const std::uint64_t start = memory.take(size, false);
    if (start != 0) {
        mappings.emplace(start, size);
    }
    return start;
}

void Machine::unmap(std::uint64_t mapping) {
    memory.give_back(mapping);
    mappings.erase(mapping);
}

int Machine::share(std::uint64_t mapping, std::size_t wanted) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    exported = wanted;
    const std::size_t whole = (mappings.at(mapping) + page - 1) / page * page;
    const int fd = memory.share(mapping, faults.short_exports ? page : whole);
    if (fd < 0) {
        return -errno;
    }
    if (faults.inheritable) {
        ::fcntl(fd, F_SETFD, 0);
    }
    return fd;
}

bool Machine::allocated(std::uint64_t address, std::size_t size) const {
    const auto after = buffers.upper_bound(address);
    if (after == buffers.begin()) {
        return false;
    }
    const auto& [start, length] = *std::prev(after);
    return address - start <= length && size <= length - (address - start);
}

} // namespace fake_habana

using fake_habana::Machine;

void fake_habana_reset(unsigned devices) {
    const std::lock_guard lock(Machine::get().mutex);
    Machine::get().reset(devices);
}

void fake_habana_fail(const char* function, unsigned nth, int result) {
    const std::lock_guard lock(Machine::get().mutex);
    Machine::get().script.fail(function, nth, result);
}

unsigned fake_habana_calls(const char* function) {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().script.calls(function);
}

unsigned fake_habana_all_calls() {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().script.all_calls();
}

void fake_habana_set_faults(const FakeHabanaFaults& faults) {
    const std::lock_guard lock(Machine::get().mutex);
    Machine::get().faults = faults;
}

int fake_habana_open(int name) {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().open_device(static_cast<fake_habana::abi::DeviceName>(name));
}

std::uint64_t fake_habana_map(std::size_t size) {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().map(size);
}

void fake_habana_unmap(std::uint64_t mapping) {
    const std::lock_guard lock(Machine::get().mutex);
    Machine::get().unmap(mapping);
}

std::size_t fake_habana_exported() {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().exported;
}

void* fake_habana_bytes(std::uint64_t address) {
    const std::lock_guard lock(Machine::get().mutex);
    return Machine::get().memory.bytes(address);
}
