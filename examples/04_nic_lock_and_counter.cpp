// SPDX-License-Identifier: BSD-3-Clause
//
// Places a lock and a counter in the device memory of a NIC. Several workers, which could run on
// several machines, change the lock by compare-and-swap and the counter by fetch-and-add. The NIC
// executes these atomics in its own memory.
#include <cstddef>
#include <cstdio>
#include <future>
#include <list>
#include <thread>
#include <vector>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "support/loopback.hpp"

namespace {

constexpr std::uint64_t workers = 4;
constexpr std::uint64_t rounds = 25;
constexpr std::uint64_t turns = workers * rounds;

// Defines the layout of the device memory, which the workers access by RDMA.
struct Words {
    std::uint64_t lock = 0;    // 0, or the number of the worker that holds the lock
    std::uint64_t counted = 0; // incremented by fetch-and-add
    std::uint64_t guarded = 0; // incremented by a read and a write, which need the lock
};

class Worker {
  public:
    Worker(const rdmabuf::ProtectionDomain& pd, const rdmabuf::RemoteRegion& nic,
           std::uint64_t number)
        : ends_(examples::connect_loopback(pd)),
          nic_(nic),
          number_(number),
          mr_(pd, &word_, sizeof(word_)) {}

    void run() {
        for (std::uint64_t round = 0; round < rounds; ++round) {
            finish(ends_.first.qp.post_fetch_add(mr_.sge(), nic_.at(offsetof(Words, counted)), 1));

            // Compare-and-swap returns the old value of the lock. If the old value is 0, this
            // worker holds the lock now.
            while (swap_lock(0, number_) != 0) {
                std::this_thread::yield();
            }
            finish(ends_.first.qp.post_read(mr_.sge(), nic_.at(offsetof(Words, guarded))));
            word_ += 1;
            finish(ends_.first.qp.post_write(mr_.sge(), nic_.at(offsetof(Words, guarded))));
            swap_lock(number_, 0);
        }
    }

  private:
    std::uint64_t swap_lock(std::uint64_t expected, std::uint64_t wanted) {
        finish(ends_.first.qp.post_compare_swap(mr_.sge(), nic_.at(offsetof(Words, lock)), expected,
                                                wanted));
        return word_;
    }
    void finish(rdmabuf::CallStatus posted) {
        posted.throw_if_failed();
        ends_.first.wait();
    }

    std::pair<examples::End, examples::End> ends_;
    rdmabuf::RemoteRegion nic_;
    std::uint64_t number_;
    std::uint64_t word_ = 0; // the local buffer of every operation
    rdmabuf::MemoryRegion mr_;
};

} // namespace

int main() try {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);
    rdmabuf::DeviceMemory memory(context, sizeof(Words), {.log2_alignment = 3});
    Words words;
    memory.copy_in(0, std::as_bytes(std::span(&words, 1)));
    const rdmabuf::DeviceMemoryMR region(pd, memory, {.access = rdmabuf::full_access});

    std::list<Worker> crew;
    std::vector<std::future<void>> shifts;
    for (std::uint64_t number = 1; number <= workers; ++number) {
        Worker& worker = crew.emplace_back(pd, region.remote(), number);
        shifts.push_back(std::async(std::launch::async, [&worker] { worker.run(); }));
    }
    for (std::future<void>& shift : shifts) {
        shift.get();
    }
    memory.copy_out(0, std::as_writable_bytes(std::span(&words, 1)));
    std::printf("%zu workers, %zu rounds each, on the memory of %s\n", workers, rounds,
                context.device_name().c_str());
    std::printf("  by fetch-add:           %zu of %zu\n", words.counted, turns);
    std::printf("  by turns, under a lock: %zu of %zu\n", words.guarded, turns);
    return words.counted == turns && words.guarded == turns && words.lock == 0 ? 0 : 1;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
