// SPDX-License-Identifier: BSD-3-Clause
// The two owners that every type is made of, with objects whose end is written down.
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/detail/unique_handle.hpp>

#include "support.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::TeardownFailures;

struct Thing {
    std::string name;
};

std::vector<std::string>& destroyed() {
    static std::vector<std::string> names;
    return names;
}
/// What destroying fails with.
int& destroy_error() {
    static int error = 0;
    return error;
}

struct DestroyThing {
    static constexpr const char* name = "destroy_thing";
    static int call(Thing* thing) noexcept {
        if (destroy_error() != 0) {
            return destroy_error();
        }
        destroyed().push_back(thing->name);
        return 0;
    }
};

using Parent = detail::shared_handle<Thing, DestroyThing>;
using Child = detail::unique_handle<Thing, DestroyThing, Parent>;
using SharedChild = detail::shared_handle<Thing, DestroyThing, Parent>;

class Handles : public ::testing::Test {
  protected:
    Handles() {
        destroyed().clear();
        destroy_error() = 0;
    }
    void TearDown() override { EXPECT_THAT(TeardownFailures::seen(), IsEmpty()); }

    Thing a{"a"}, b{"b"}, parent_of_a{"parent of a"}, parent_of_b{"parent of b"};

    static Child child(Thing& thing, Thing& parent) {
        return Child(&thing, Child::deleter_type::holding(Parent::unique(&parent)));
    }

  private:
    TeardownFailures failures_;
};

TEST_F(Handles, AssignedToFreeTheOldObjectBeforeItsOldParent) {
    Child owner = child(a, parent_of_a);
    owner = child(b, parent_of_b);
    EXPECT_THAT(destroyed(), ElementsAre("a", "parent of a"));
    EXPECT_EQ(owner.get(), &b);
    owner.reset();
    owner = Child();
    EXPECT_THAT(destroyed(), ElementsAre("a", "parent of a", "b", "parent of b"));
}

TEST_F(Handles, MovedFromAreEmpty) {
    Child owner = child(a, parent_of_a);
    const Child other = std::move(owner);
    EXPECT_EQ(owner, nullptr); // NOLINT(bugprone-use-after-move): what this is about
    EXPECT_EQ(other.get(), &a);
    EXPECT_THAT(destroyed(), IsEmpty());
}

TEST_F(Handles, MovedToThemselvesStayWhatTheyAre) {
    Child owner = child(a, parent_of_a);
    Child& same = owner;
    owner = std::move(same);
    EXPECT_EQ(owner.get(), &a);
    EXPECT_THAT(destroyed(), IsEmpty());

    SharedChild shared(child(b, parent_of_b));
    SharedChild& same_shared = shared;
    shared = std::move(same_shared);
    EXPECT_EQ(shared.get(), &b);
    EXPECT_THAT(destroyed(), IsEmpty());
}

TEST_F(Handles, ReleasedGiveTheObjectAwayAndKeepTheParent) {
    {
        Child owner = child(a, parent_of_a);
        EXPECT_EQ(owner.release(), &a);
        EXPECT_THAT(destroyed(), IsEmpty());
    }
    EXPECT_THAT(destroyed(), ElementsAre("parent of a"));
}

TEST_F(Handles, ClosedCanHoldAnotherObjectAndDestroyIt) {
    Child owner = child(a, parent_of_a);
    detail::close_handle(owner);
    EXPECT_EQ(owner, nullptr);
    EXPECT_THAT(destroyed(), ElementsAre("a", "parent of a"));
    owner = child(b, parent_of_b);
    owner.reset();
    EXPECT_THAT(destroyed(), ElementsAre("a", "parent of a", "b"));
}

TEST_F(Handles, ReportWhatADestructorCannotGiveBack) {
    {
        const Child owner = child(a, parent_of_a);
        destroy_error() = EIO;
    }
    EXPECT_THAT(TeardownFailures::seen(),
                ElementsAre(Pair("destroy_thing", EIO), Pair("destroy_thing", EIO)));
    EXPECT_THAT(destroyed(), IsEmpty());
    const TeardownFailures forget;
}

TEST_F(Handles, SharedReleasedLeaveTheOtherHoldersABorrowedObject) {
    SharedChild owner(child(a, parent_of_a));
    auto copy = std::make_optional<SharedChild>(owner);
    EXPECT_EQ(owner.release(), &a);
    EXPECT_FALSE(owner);
    EXPECT_EQ(copy->get(), &a);
    EXPECT_EQ(copy->parent<0>("parent", "object").get(), &parent_of_a);
    copy.reset();
    EXPECT_THAT(destroyed(), ElementsAre("parent of a"));
    EXPECT_EQ(owner.release(), nullptr);
}

} // namespace
} // namespace rdmabuf
