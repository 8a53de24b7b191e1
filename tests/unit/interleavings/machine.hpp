// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rdmabuf::testing {

/// A machine with total store order, in which small programs run one step at a time: loads see a
/// thread's own stores at once, and those of others once they have left that thread's buffer. It
/// runs a set of programs in every order there is, of steps and of stores that leave buffers.
///
/// A state that was met before is not followed again: what a program does next depends on what it
/// has read, so the state is memory, the buffers, and what each has read so far.
class Machine {
  public:
    using Value = std::uint64_t;
    using Programs = std::vector<std::function<void()>>;

    /// What is wrong with the programs: thrown by their checks.
    struct Violation : std::runtime_error {
        using std::runtime_error::runtime_error;
    };

    /// Runs what @p make makes, over and over. @p make sets up the memory, and gives the programs
    /// and what has to hold when all have ended. @return how many states there were.
    static std::size_t explore(
        const std::function<std::pair<Programs, std::function<void()>>()>& make);

    /// The one at work.
    static Machine& current();

    // For the programs. Outside of them, memory is changed at once.

    [[nodiscard]] std::size_t allocate(Value value);
    /// @param step  whether others may do something before it
    [[nodiscard]] Value load(std::size_t word, bool step = true);
    void store(std::size_t word, Value value);
    /// A store that is seen before anything that follows it.
    Value exchange(std::size_t word, Value value);
    /// Empties everybody's buffers, as membarrier(2).
    void barrier();
    /// Goes on once memory has changed: for loops that wait.
    void wait_for_change();
    void lock();
    void unlock();

    static void require(bool holds, const char* what) {
        if (!holds) {
            throw Violation(what);
        }
    }

  private:
    struct Store {
        std::size_t word;
        Value value;
    };
    struct Thread {
        std::function<void()> program;
        ucontext_t context{};
        std::unique_ptr<std::byte[]> stack;
        std::deque<Store> buffer;
        /// Of everything it has read.
        std::uint64_t history = 0;
        bool over = false;
        bool waits_for_lock = false;
        /// The change of memory that it waits for one after.
        std::uint64_t waits_after = 0;
    };

    static constexpr std::size_t none = ~std::size_t{0};
    static constexpr std::size_t stack_size = 65536;

    void run(Programs programs, const std::function<void()>& check, std::vector<std::size_t>& path,
             std::vector<std::size_t>& choices, std::unordered_set<std::uint64_t>& seen);
    static void enter(unsigned upper, unsigned lower);
    /// Ends the step of the program that calls it.
    void step();
    void drain(Thread& thread);
    void commit(const Store& store);
    void remember(Value value);
    [[nodiscard]] std::vector<std::size_t> possible() const;
    void take(std::size_t choice);
    [[nodiscard]] std::uint64_t state() const;

    std::vector<Value> memory_;
    std::vector<std::unique_ptr<Thread>> threads_;
    ucontext_t scheduler_{};
    std::size_t running_ = none;
    std::size_t lock_holder_ = none;
    std::uint64_t changes_ = 1;
    std::string violation_;
};

/// What LeaseState and ReaderSections need of a platform, on the Machine.
/// @tparam Fences  whether readers order their stores themselves, for want of a barrier for all
template <bool Fences>
struct ModelPlatform {
    template <class T>
    class Atomic {
      public:
        Atomic() : Atomic(T{}) {}
        explicit Atomic(T value)
            : word_(Machine::current().allocate(static_cast<Machine::Value>(value))) {}
        /// A relaxed one is of a word that nobody else writes to, or that needs no order with what
        /// was done last: no step of its own, which spares many states.
        T load(std::memory_order order) const {
            return static_cast<T>(
                Machine::current().load(word_, order != std::memory_order_relaxed));
        }
        void store(T value, std::memory_order order) {
            if (order == std::memory_order_seq_cst) {
                exchange(value, order);
            } else {
                Machine::current().store(word_, static_cast<Machine::Value>(value));
            }
        }
        T exchange(T value, std::memory_order /*order*/) {
            return static_cast<T>(
                Machine::current().exchange(word_, static_cast<Machine::Value>(value)));
        }

      private:
        std::size_t word_;
    };

    static constexpr unsigned thread_slots = 2;
    static constexpr unsigned thread_slot_step = 1;
    static constexpr std::size_t stride = 1;

    static bool barrier_is_enough() { return !Fences; }
    static void compiler_barrier() {}
    static void barrier() {
        if (!Fences) {
            Machine::current().barrier();
        }
    }
    static void pause() { Machine::current().wait_for_change(); }
    static unsigned thread_slots_in_use() { return thread_slots; }
};

} // namespace rdmabuf::testing
