// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <iterator>
#include <utility>

namespace fake_driver {
namespace {

constexpr std::size_t packing = 512;
constexpr std::size_t packed_block = std::size_t{2} << 20U;

bool is_host(Kind kind) {
    return kind == Kind::host || kind == Kind::host_without_device || kind == Kind::locked;
}

/// Holds the lock of the machine.
class Locked {
  public:
    Machine* operator->() const noexcept { return &Machine::get(); }

  private:
    std::lock_guard<std::mutex> lock_{Machine::get().mutex};
};

} // namespace

std::size_t cpu_page_size() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

Machine& Machine::get() {
    static auto* const machine = [] {
        auto* const made = new Machine;
        made->reset(vendor().devices);
        return made;
    }();
    return *machine;
}

void Machine::reset(unsigned count) {
    free_all();
    // The vector is not resized: the address of a primary context is its handle.
    devices = std::vector<Device>(count);
    for (unsigned i = 0; i < count; ++i) {
        devices[i].attributes = vendor().attributes;
        devices[i].primary.device = i;
        program_contexts.at(i) = {.device = i, .alive = true, .references = 1};
    }
    forgotten_attributes.clear();
    objects.clear();
    recorded.clear();
    references = 0;
    process_ = 0;
    calls_.clear();
    failures_.clear();
    interferences_.clear();
    settings_.fill(0);
    set(Setting::block_alignment, static_cast<std::int64_t>(cpu_page_size()));
    for (const auto& [setting, value] : vendor().settings) {
        set(setting, value);
    }
    if (vendor().reset != nullptr) {
        vendor().reset();
    }
}

std::optional<int> Machine::attribute(unsigned device, int attribute) const {
    const auto& attributes = devices.at(device).attributes;
    const auto found = attributes.find(attribute);
    return found == attributes.end() || found->second < 0 ? std::nullopt
                                                          : std::optional(found->second);
}

void Machine::initialise() {
    ++references;
    process_ = ::getpid();
}

bool Machine::initialised() const {
    return references != 0 && process_ == ::getpid();
}

bool Machine::initialised_by_parent() const {
    return references != 0 && process_ != ::getpid();
}

void Machine::free_all() {
    allocations.clear();
    blocks.clear();
    open_block_ = 0;
    memory.reset();
}

std::uint64_t Machine::reserve(std::size_t size, bool visible) {
    const auto page = static_cast<std::size_t>(setting(Setting::block_alignment));
    const std::size_t whole = round_up(size, page);
    const std::uint64_t start = memory.take(whole, visible, page);
    if (start != 0) {
        blocks[start] = {.size = whole, .reserved = true};
    }
    return start;
}

std::uint64_t Machine::fit(std::uint64_t block, std::size_t size, std::size_t first,
                           std::size_t alignment) const {
    const std::uint64_t end = block + blocks.at(block).size;
    std::uint64_t start = block + first;
    for (auto next = allocations.lower_bound(start); next != allocations.end() && next->first < end;
         ++next) {
        if (next->first - start >= size) {
            break;
        }
        start = round_up(next->first + next->second.size, alignment);
    }
    return start <= end && size <= end - start ? start : 0;
}

void Machine::place(std::uint64_t address, Allocation allocation) {
    allocation.start = address;
    allocation.block = std::prev(blocks.upper_bound(address))->first;
    allocation.id = ++last_id_;
    allocations[address] = std::move(allocation);
}

std::uint64_t Machine::allocate(Allocation allocation) {
    std::uint64_t start = 0;
    if (setting(Setting::packed) != 0 && !is_host(allocation.kind) &&
        allocation.size < packed_block) {
        // The first allocation of a block does not begin on a page.
        if (open_block_ == 0 ||
            (start = fit(open_block_, allocation.size, packing, packing)) == 0) {
            open_block_ = reserve(packed_block);
            start = fit(open_block_, allocation.size, packing, packing);
        }
        blocks.at(open_block_).reserved = false;
    } else {
        start = reserve(allocation.size, is_host(allocation.kind));
        if (start == 0) {
            return 0;
        }
        blocks.at(start).reserved = false;
    }
    place(start, std::move(allocation));
    return start;
}

bool Machine::free(std::uint64_t address) {
    Allocation freed;
    {
        const std::lock_guard lock(mutex);
        const auto found = allocations.find(address);
        if (found == allocations.end()) {
            return false;
        }
        freed = std::move(found->second);
        allocations.erase(found);
    }
    // The driver no longer knows the allocation, and its address is not used again yet.
    for (const Notifier& notifier : freed.notifiers) {
        notifier.callback(notifier.pointer, notifier.data);
    }
    freed.state.reset();
    const std::lock_guard lock(mutex);
    const auto next = allocations.lower_bound(freed.block);
    if (blocks.at(freed.block).reserved ||
        (next != allocations.end() && next->second.block == freed.block)) {
        return true;
    }
    if (freed.block == open_block_) {
        open_block_ = 0;
    }
    blocks.erase(freed.block);
    memory.give_back(freed.block);
    return true;
}

Allocation* Machine::holder(std::uint64_t address) {
    const auto after = allocations.upper_bound(address);
    if (after == allocations.begin()) {
        return nullptr;
    }
    const auto& [start, allocation] = *std::prev(after);
    return address - start < allocation.size ? &std::prev(after)->second : nullptr;
}

std::byte* Machine::range(std::uint64_t address, std::size_t size) {
    const Allocation* const found = holder(address);
    return found != nullptr && size <= found->size - (address - found->start)
               ? memory.bytes(address)
               : nullptr;
}

bool Machine::share(std::uint64_t start, std::size_t size, int* fd) {
    if (setting(Setting::no_descriptor) != 0) {
        return true;
    }
    const int shared =
        memory.share(start, size - static_cast<std::size_t>(setting(Setting::shortfall)));
    if (shared < 0) {
        return false;
    }
    if (setting(Setting::inheritable) != 0) {
        ::fcntl(shared, F_SETFD, 0);
    }
    *fd = shared;
    return true;
}

std::optional<int> Machine::enter(const std::string& function) {
    ++calls_[function];
    const auto planned = failures_.find(function);
    if (planned == failures_.end()) {
        return std::nullopt;
    }
    auto& [result, nth, times] = planned->second;
    if (nth > 1) {
        --nth;
        return std::nullopt;
    }
    const int planned_result = result;
    if (--times == 0) {
        failures_.erase(planned);
    }
    return planned_result;
}

void Machine::interfere(const std::string& function) {
    Interference planned{};
    Allocation freed;
    {
        const std::lock_guard lock(mutex);
        const auto found = interferences_.find(function);
        if (found == interferences_.end()) {
            return;
        }
        planned = found->second;
        interferences_.erase(found);
        freed = allocations.at(planned.address);
    }
    freed.state.reset();
    free(planned.address);
    if (planned.again) {
        const std::lock_guard lock(mutex);
        freed.notifiers.clear();
        if (allocate(std::move(freed)) != planned.address) {
            std::abort();
        }
    }
}

void reset(unsigned devices) {
    Locked()->reset(devices);
}

void set(Setting setting, std::int64_t value) {
    Locked()->set(setting, value);
}

void set_attribute(unsigned device, int attribute, int value) {
    Locked()->devices.at(device).attributes[attribute] = value;
}

void forget_pointer_attribute(int attribute) {
    Locked()->forgotten_attributes.insert(attribute);
}

void fail(const std::string& function, int result, unsigned nth, unsigned times) {
    Locked()->plan_failure(function, result, nth, times);
}

void free_before(const std::string& function, std::uint64_t address, bool again) {
    Locked()->plan_free(function, address, again);
}

unsigned calls(const std::string& function) {
    const Locked machine;
    const auto found = machine->calls().find(function);
    return found != machine->calls().end() ? found->second : 0;
}

unsigned all_calls() {
    const Locked machine;
    unsigned sum = 0;
    for (const auto& [function, count] : machine->calls()) {
        sum += count;
    }
    return sum;
}

std::uint64_t recorded(const std::string& function) {
    return Locked()->recorded[function];
}

std::uint64_t make(Kind kind, std::size_t size, unsigned device, bool exportable) {
    Allocation allocation{.size = size, .kind = kind, .device = device, .exportable = exportable};
    allocation.context = kind == Kind::pooled || kind == Kind::host_without_device
                             ? nullptr
                             : program_context(device);
    const Locked machine;
    if (vendor().make_initialises && !machine->initialised()) {
        machine->initialise();
    }
    return machine->allocate(std::move(allocation));
}

std::uint64_t block_of(std::uint64_t address) {
    const Locked machine;
    const Allocation* const found = machine->holder(address);
    return found != nullptr ? found->block : 0;
}

std::uint64_t reserve(std::size_t size) {
    return Locked()->reserve(size);
}

void place(std::uint64_t address, Kind kind, std::size_t size, unsigned device, bool exportable) {
    Allocation allocation{.size = size, .kind = kind, .device = device, .exportable = exportable};
    allocation.context = kind == Kind::mapped || kind == Kind::host_without_device
                             ? nullptr
                             : program_context(device);
    Locked()->place(address, std::move(allocation));
}

void replace(std::uint64_t address) {
    const Locked machine;
    machine->place(address, machine->allocations.at(address));
}

void free(std::uint64_t address) {
    Machine::get().free(address);
}

void free_unreported(std::uint64_t address) {
    Locked()->allocations.at(address).notifiers.clear();
    Machine::get().free(address);
}

unsigned live() {
    const Locked machine;
    std::size_t count = machine->objects.size();
    for (const auto& [start, allocation] : machine->allocations) {
        count += allocation.counted ? 1 : 0;
    }
    return static_cast<unsigned>(count);
}

void* bytes(std::uint64_t address) {
    return Locked()->memory.bytes(address);
}

unsigned references() {
    return Locked()->references;
}

unsigned notifiers() {
    const Locked machine;
    std::size_t count = 0;
    for (const auto& [start, allocation] : machine->allocations) {
        count += allocation.notifiers.size();
    }
    return static_cast<unsigned>(count);
}

void* program_context(unsigned device) {
    return &Locked()->program_contexts.at(vendor().one_context ? 0 : device);
}

void destroy_program_context(unsigned device) {
    Locked()->program_contexts.at(device).alive = false;
}

void renew_program_context(unsigned device) {
    Locked()->program_contexts.at(device).id = Context::next_id();
}

unsigned primary_references(unsigned device) {
    return Locked()->devices.at(device).primary.references;
}

} // namespace fake_driver
