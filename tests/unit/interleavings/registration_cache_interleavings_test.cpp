// SPDX-License-Identifier: BSD-3-Clause
// The protocol of leases, of which the library is made, in every order that small programs can run
// in, on a machine that delays stores. What the programs do around it is what CacheCore does.
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "cache/protocol.hpp"
#include "machine.hpp"

namespace rdmabuf::testing {
namespace {

/// Without the barrier that readers rely on.
struct NoBarrier : ModelPlatform<false> {
    static void barrier() {}
};

/// One entry, and what is done with it.
template <class P>
class Entry {
  public:
    explicit Entry(bool watched) : watched_(watched) { begin(1); }

    // Programs

    /// A hit, and the lease given back.
    void hit(unsigned thread_slot) {
        if (const std::uint32_t id = take(thread_slot); id != 0) {
            give_back(thread_slot, id);
        }
    }
    /// A hit, whose lease another thread gives back.
    void hit_for_another(unsigned thread_slot) {
        const std::uint32_t id = take(thread_slot);
        handed_over_.exchange(id != 0 ? id : nothing, seq_cst);
    }
    void give_back_of_another(unsigned thread_slot) {
        std::uint32_t id = 0;
        while ((id = handed_over_.load(seq_cst)) == 0) {
            P::pause();
        }
        if (id != nothing) {
            give_back(thread_slot, id);
        }
    }
    void invalidate() {
        Machine::current().lock();
        if (leases_.found()) {
            retire();
            settle();
        }
        Machine::current().unlock();
    }
    /// invalidate(), and another entry takes its place.
    void replace() {
        invalidate();
        Machine::current().lock();
        if (id_.load(relaxed) == 0) {
            begin(2);
        }
        Machine::current().unlock();
    }
    void invalidate_without_waiting() {
        Machine::current().lock();
        leases_.retire();
        settle();
        Machine::current().unlock();
    }

    /// What has to hold in the end.
    void require_gone() const {
        Machine::require(id_.load(seq_cst) == 0, "the entry was never destroyed");
    }

  private:
    using Word = typename P::template Atomic<std::uint32_t>;
    static constexpr auto seq_cst = std::memory_order_seq_cst;
    static constexpr auto relaxed = std::memory_order_relaxed;
    static constexpr std::uint32_t nothing = 99;

    void begin(std::uint32_t id) {
        id_.store(id, relaxed);
        leases_.begin(watched_);
    }
    /// @return the entry that it got a lease on; 0 for none
    std::uint32_t take(unsigned thread_slot) {
        std::uint32_t id = 0;
        sections_.enter(thread_slot);
        if (leases_.found()) {
            leases_.take(counts_.data(), thread_slot);
            id = id_.load(relaxed);
            Machine::require(id != 0, "found when it was destroyed");
        }
        sections_.exit(thread_slot);
        return id;
    }
    void give_back(unsigned thread_slot, std::uint32_t id) {
        Machine::require(id_.load(seq_cst) == id, "destroyed while there is a lease");
        sections_.enter(thread_slot);
        const bool attention = leases_.give_back(counts_.data(), thread_slot);
        sections_.exit(thread_slot);
        if (attention) {
            Machine::current().lock();
            if (watched_ && leases_.found() && detail::LeaseState<P>::leases(counts_.data()) == 0) {
                retire();
            }
            settle();
            Machine::current().unlock();
        }
    }
    void retire() {
        leases_.retire();
        sections_.wait();
    }
    void settle() {
        if (leases_.settle(counts_.data())) {
            Machine::require(id_.load(relaxed) != 0, "destroyed twice");
            id_.store(0, relaxed);
        }
    }

    const bool watched_;
    detail::ReadSideSections<P> sections_;
    std::array<Word, P::thread_slots> counts_;
    detail::LeaseState<P> leases_;
    /// Which entry it is; 0 once it is destroyed.
    Word id_;
    Word handed_over_;
};

/// Runs @p programs in every order. @return how many states there were.
template <class P>
std::size_t explore(const std::vector<void (*)(Entry<P>&)>& programs, bool watched = false,
                    bool gone = true) {
    return Machine::explore([&] {
        const auto entry = std::make_shared<Entry<P>>(watched);
        Machine::Programs running;
        for (const auto program : programs) {
            running.emplace_back([entry, program] { program(*entry); });
        }
        return std::pair<Machine::Programs, std::function<void()>>(std::move(running),
                                                                   [entry, gone] {
                                                                       if (gone) {
                                                                           entry->require_gone();
                                                                       }
                                                                   });
    });
}

template <class P>
class Interleavings : public ::testing::Test {};
using Platforms = ::testing::Types<ModelPlatform<false>, ModelPlatform<true>>;
TYPED_TEST_SUITE(Interleavings, Platforms, );

// Of all of them: nothing is destroyed while there is a lease, or twice, and in the end it is.

TYPED_TEST(Interleavings, TwoHitsWhileItIsInvalidated) {
    using E = Entry<TypeParam>;
    EXPECT_GT(explore<TypeParam>(
                  {[](E& e) { e.hit(0); }, [](E& e) { e.hit(1); }, [](E& e) { e.invalidate(); }}),
              1000U);
}

TYPED_TEST(Interleavings, TwoInvalidationsAtOnce) {
    using E = Entry<TypeParam>;
    explore<TypeParam>(
        {[](E& e) { e.hit(0); }, [](E& e) { e.invalidate(); }, [](E& e) { e.invalidate(); }});
}

TYPED_TEST(Interleavings, ALeaseThatAnotherThreadGivesBack) {
    using E = Entry<TypeParam>;
    explore<TypeParam>({[](E& e) { e.hit_for_another(0); }, [](E& e) { e.give_back_of_another(1); },
                        [](E& e) { e.invalidate(); }});
}

TYPED_TEST(Interleavings, AnEntryThatEndsWithItsLastLease) {
    using E = Entry<TypeParam>;
    explore<TypeParam>({[](E& e) { e.hit(0); }, [](E& e) { e.hit(1); }}, true);
}

TYPED_TEST(Interleavings, AnEntryThatEndsWithItsLastLeaseOrEarlier) {
    using E = Entry<TypeParam>;
    explore<TypeParam>(
        {[](E& e) { e.hit(0); }, [](E& e) { e.hit(1); }, [](E& e) { e.invalidate(); }}, true);
}

TYPED_TEST(Interleavings, ASlotThatIsUsedAgain) {
    using E = Entry<TypeParam>;
    explore<TypeParam>(
        {[](E& e) { e.hit(0); }, [](E& e) { e.replace(); }, [](E& e) { e.invalidate(); }}, false,
        false);
}

// That the machine finds what is wrong.

TEST(InterleavingsTest, FindWhatGoesWrongWithoutTheBarrier) {
    using E = Entry<NoBarrier>;
    EXPECT_THROW(explore<NoBarrier>({[](E& e) { e.hit(0); }, [](E& e) { e.invalidate(); }}),
                 Machine::Violation);
}

TEST(InterleavingsTest, FindWhatGoesWrongWhenReadersAreNotWaitedFor) {
    using E = Entry<ModelPlatform<true>>;
    EXPECT_THROW(explore<ModelPlatform<true>>(
                     {[](E& e) { e.hit(0); }, [](E& e) { e.invalidate_without_waiting(); }}),
                 Machine::Violation);
}

} // namespace
} // namespace rdmabuf::testing
