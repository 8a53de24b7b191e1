// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_result.hpp"

#include <cerrno>

#include <rdmabuf/error.hpp>

#include "fails_with.hpp"
#include "support.hpp"

namespace rdmabuf::detail {
namespace {

using testing::error_of;
using testing::fails_with;
using namespace std::string_literals;

auto text_of(const DriverFailure& failure) {
    return error_of([&] { failure.raise("acmeExport", "8 bytes at 0x10 were asked for"); });
}

TEST(DriverFailure, HasTheNameTheHintAndTheRemedy) {
    const DriverFailure failure{"ACME_BUSY (3)", EBUSY, "ask again"};
    EXPECT_THAT(text_of(failure),
                fails_with("acmeExport", EBUSY,
                           "ACME_BUSY (3): 8 bytes at 0x10 were asked for; ask again"));
}

TEST(DriverFailure, HasNoRemedyWhereNobodyKnowsOne) {
    const DriverFailure failure{"ACME_FAILED (1)", EIO, nullptr};
    const auto error = text_of(failure);
    EXPECT_THAT(error, fails_with("acmeExport", EIO, "ACME_FAILED (1): 8 bytes at 0x10"));
    EXPECT_EQ(error->hint(), "ACME_FAILED (1): 8 bytes at 0x10 were asked for");
}

TEST(ReportTeardownUnless, PassesOnWhatIsNotFine) {
    static int reported = 0;
    const TeardownFailureHandler before =
        set_teardown_failure_handler([](const char* function, int error) noexcept {
            EXPECT_EQ(function, "acmeFree"s);
            reported = error;
        });
    report_teardown_unless({0, 4}, 0, EIO, "acmeFree");
    report_teardown_unless({0, 4}, 4, EIO, "acmeFree");
    EXPECT_EQ(reported, 0);
    report_teardown_unless({0, 4}, 3, EBUSY, "acmeFree");
    EXPECT_EQ(reported, EBUSY);
    set_teardown_failure_handler(before);
}

} // namespace
} // namespace rdmabuf::detail
