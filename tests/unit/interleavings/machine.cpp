// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <algorithm>

namespace rdmabuf::testing {
namespace {

Machine* at_work = nullptr;

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
    hash ^= value + 0x9e3779b97f4a7c15U + (hash << 12U) + (hash >> 4U);
    hash *= 0xff51afd7ed558ccdU;
    return hash ^ (hash >> 33U);
}

} // namespace

Machine& Machine::current() {
    return *at_work;
}

std::size_t Machine::explore(
    const std::function<std::pair<Programs, std::function<void()>>()>& make) {
    std::unordered_set<std::uint64_t> seen;
    // The choice made at each step of a run, and how many there were.
    std::vector<std::size_t> path;
    std::vector<std::size_t> choices;
    do {
        Machine machine;
        at_work = &machine;
        auto [programs, check] = make();
        machine.run(std::move(programs), check, path, choices, seen);
        // The next path: the last step that has another choice takes it.
        while (!path.empty() && path.back() + 1 == choices.back()) {
            path.pop_back();
            choices.pop_back();
        }
        if (!path.empty()) {
            ++path.back();
        }
    } while (!path.empty());
    at_work = nullptr;
    return seen.size();
}

void Machine::run(Programs programs, const std::function<void()>& check,
                  std::vector<std::size_t>& path, std::vector<std::size_t>& choices,
                  std::unordered_set<std::uint64_t>& seen) {
    for (auto& program : programs) {
        auto thread = std::make_unique<Thread>();
        thread->program = std::move(program);
        thread->stack = std::make_unique<std::byte[]>(stack_size);
        ::getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = thread->stack.get();
        thread->context.uc_stack.ss_size = stack_size;
        thread->context.uc_link = &scheduler_;
        const auto self = reinterpret_cast<std::uintptr_t>(this);
        ::makecontext(&thread->context, reinterpret_cast<void (*)()>(&Machine::enter), 2,
                      static_cast<unsigned>(self >> 32U), static_cast<unsigned>(self));
        threads_.push_back(std::move(thread));
    }
    for (std::size_t depth = 0;; ++depth) {
        const std::vector<std::size_t> next = possible();
        if (next.empty()) {
            const bool all_over =
                std::ranges::all_of(threads_, [](const auto& thread) { return thread->over; });
            require(all_over, "programs wait for each other");
            check();
            return;
        }
        if (depth == path.size()) {
            if (!seen.insert(state()).second) {
                return;
            }
            path.push_back(0);
            choices.push_back(next.size());
        }
        take(next[path[depth]]);
        if (!violation_.empty()) {
            throw Violation(violation_);
        }
    }
}

void Machine::enter(unsigned upper, unsigned lower) {
    auto& machine = *reinterpret_cast<Machine*>((std::uintptr_t{upper} << 32U) | lower);
    Thread& thread = *machine.threads_[machine.running_];
    machine.remember(0); // every step has to lead to another state, or it is not followed
    try {
        thread.program();
    } catch (const Violation& violation) {
        machine.violation_ = violation.what();
    }
    thread.over = true;
}

// What can happen next: a step of thread i is 2 i, a store that leaves its buffer 2 i + 1.
std::vector<std::size_t> Machine::possible() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
        const Thread& thread = *threads_[i];
        const bool blocked = thread.over || (thread.waits_for_lock && lock_holder_ != none) ||
                             thread.waits_after == changes_;
        if (!blocked) {
            all.push_back(2 * i);
        }
        if (!thread.buffer.empty()) {
            all.push_back(2 * i + 1);
        }
    }
    return all;
}

void Machine::take(std::size_t choice) {
    Thread& thread = *threads_[choice / 2];
    if (choice % 2 != 0) {
        commit(thread.buffer.front());
        thread.buffer.pop_front();
        return;
    }
    running_ = choice / 2;
    ::swapcontext(&scheduler_, &thread.context);
    running_ = none;
}

void Machine::step() {
    if (running_ != none) {
        ::swapcontext(&threads_[running_]->context, &scheduler_);
    }
}

void Machine::commit(const Store& store) {
    if (memory_[store.word] != store.value) {
        memory_[store.word] = store.value;
        ++changes_;
    }
}

void Machine::drain(Thread& thread) {
    for (; !thread.buffer.empty(); thread.buffer.pop_front()) {
        commit(thread.buffer.front());
    }
}

void Machine::remember(Value value) {
    Thread& thread = *threads_[running_];
    thread.history = mixed(thread.history, value + 1);
}

std::uint64_t Machine::state() const {
    std::uint64_t hash = mixed(1, lock_holder_);
    for (const Value value : memory_) {
        hash = mixed(hash, value);
    }
    for (const auto& thread : threads_) {
        hash = mixed(hash, thread->history);
        hash = mixed(hash, (thread->over ? 1U : 0U) + (thread->waits_for_lock ? 2U : 0U) +
                               (thread->waits_after == changes_ ? 4U : 0U));
        hash = mixed(hash, thread->buffer.size());
        for (const Store& store : thread->buffer) {
            hash = mixed(mixed(hash, store.word), store.value);
        }
    }
    return hash;
}

std::size_t Machine::allocate(Value value) {
    memory_.push_back(value);
    return memory_.size() - 1;
}

Machine::Value Machine::load(std::size_t word, bool is_step) {
    if (running_ == none) {
        return memory_[word];
    }
    if (is_step) {
        step();
    }
    const auto& buffer = threads_[running_]->buffer;
    const auto own = std::find_if(buffer.rbegin(), buffer.rend(),
                                  [word](const Store& store) { return store.word == word; });
    const Value value = own != buffer.rend() ? own->value : memory_[word];
    remember(value);
    return value;
}

void Machine::store(std::size_t word, Value value) {
    if (running_ == none) {
        memory_[word] = value;
        return;
    }
    step();
    threads_[running_]->buffer.push_back({word, value});
    remember(0);
}

Machine::Value Machine::exchange(std::size_t word, Value value) {
    if (running_ == none) {
        return std::exchange(memory_[word], value);
    }
    step();
    drain(*threads_[running_]);
    const Value before = memory_[word];
    commit({word, value});
    remember(before);
    return before;
}

void Machine::barrier() {
    step();
    for (const auto& thread : threads_) {
        drain(*thread);
    }
    remember(0);
}

void Machine::wait_for_change() {
    threads_[running_]->waits_after = changes_;
    step();
    remember(0);
}

void Machine::lock() {
    threads_[running_]->waits_for_lock = true;
    step();
    threads_[running_]->waits_for_lock = false;
    drain(*threads_[running_]);
    lock_holder_ = running_;
    remember(0);
}

void Machine::unlock() {
    step();
    drain(*threads_[running_]);
    lock_holder_ = none;
    remember(0);
}

} // namespace rdmabuf::testing
