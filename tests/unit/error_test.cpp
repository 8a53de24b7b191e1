// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

#include "support.hpp"

namespace rdmabuf {
namespace {

using testing::error_of;

TEST(Error, ReadsFunctionMeaningNameHint) {
    const Error error(EINVAL, "ibv_reg_mr", "a length of 0");
    EXPECT_STREQ(error.what(), "ibv_reg_mr: Invalid argument (EINVAL): a length of 0");
    EXPECT_EQ(error.error(), EINVAL);
    EXPECT_STREQ(error.function(), "ibv_reg_mr");
    EXPECT_EQ(error.hint(), "a length of 0");
}

TEST(Error, OfAVerbsFunctionWithEioNamesTheDeviceAsAPossibleCause) {
    const auto hint = [](const auto& call) { return error_of(call)->hint(); };
    EXPECT_THAT(hint([] { Status(EIO).throw_if_failed("ibv_post_recv"); }),
                ::testing::StartsWith("the device may have been reset or removed"));
    EXPECT_THAT(hint([] { detail::check_zero(EIO, "ibv_modify_qp", "to ERR"); }),
                ::testing::StartsWith("to ERR; the device may have been reset or removed"));
    EXPECT_EQ(hint([] { detail::check_zero(EINVAL, "ibv_modify_qp", "to ERR"); }), "to ERR");
    EXPECT_EQ(hint([] { Status(ENOMEM).throw_if_failed("ibv_post_recv"); }), "");
    EXPECT_EQ(hint([] { Status(EIO).throw_if_failed("irecv"); }), "");
    EXPECT_EQ(hint([] { detail::check_zero(EIO, "ibv_reg_dmabuf_mr"); }), "");
}

TEST(Result, HasTheContentsOfTheErrorThatAttemptCaught) {
    const auto result =
        attempt([]() -> int { throw Error(EINVAL, "ibv_reg_mr", "a length of 0"); });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error(), EINVAL);
    EXPECT_STREQ(result.error_info().function(), "ibv_reg_mr");
    EXPECT_EQ(result.reason(), "a length of 0");
    EXPECT_EQ(result.message(), "ibv_reg_mr: Invalid argument (EINVAL): a length of 0");
}

TEST(Result, ValueThrowsTheReasonAndTheRemedy) {
    const Result<int> result(ErrorInfo(ENOENT, "dlopen", "no driver", "install it"));
    const auto error = error_of([&] { static_cast<void>(result.value()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error(), ENOENT);
    EXPECT_STREQ(error->function(), "dlopen");
    EXPECT_EQ(error->hint(), "no driver; install it");
    EXPECT_EQ(error->what(), result.message());
    const Availability found = result.error_info().availability();
    EXPECT_FALSE(found);
    EXPECT_EQ(found.reason, "no driver");
    EXPECT_EQ(found.remedy, "install it");
}

TEST(Result, OfAnExceptionWithoutAFunctionHasOnlyItsText) {
    const auto result = attempt([]() -> int { throw std::length_error("too long"); });
    EXPECT_EQ(result.error(), EIO);
    EXPECT_EQ(result.message(), "too long");
    EXPECT_EQ(attempt([] { throw std::bad_alloc(); }).message(),
              "operator new: Cannot allocate memory (ENOMEM): the process has no host memory left");
    EXPECT_TRUE(attempt([] {}).ok());
}

TEST(Error, ComparesAsASystemError) {
    const Error error(EBUSY, "ibv_dealloc_pd");
    EXPECT_EQ(error.code(), std::errc::device_or_resource_busy);
    EXPECT_EQ(error.code().category(), std::system_category());
    EXPECT_THROW(throw Error(error), std::system_error);
}

TEST(Error, KnowsWhereItWasNoticed) {
    const Error error(EIO, "f");
    const unsigned line = __LINE__ - 1;
    EXPECT_EQ(error.where().line, line);
    EXPECT_THAT(error.where().file, ::testing::EndsWith("error_test.cpp"));
    EXPECT_STREQ(error.where().function, "TestBody");
}

TEST(Error, DescribesTheErrnoThatOnlyTheKernelHas) {
    EXPECT_EQ(describe_errno(524), "Operation not supported (ENOTSUPP, kernel-internal 524)");
    EXPECT_STREQ(Error(524, "ibv_reg_dmabuf_mr").what(),
                 "ibv_reg_dmabuf_mr: Operation not supported (ENOTSUPP, kernel-internal 524)");
}

TEST(Error, DescribesNumbersThatAreNoErrnoByTheNumber) {
    EXPECT_EQ(describe_errno(4095), "Unknown error 4095 (errno 4095)");
}

TEST(CheckPointer, HandsAPointerThrough) {
    int value = 0;
    EXPECT_EQ(detail::check_pointer(&value, "f"), &value);
}

TEST(CheckPointer, TakesTheErrnoOfNull) {
    errno = ENOSPC;
    const auto error = error_of([] { detail::check_pointer<int>(nullptr, "f", "a hint"); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->what(), "f: No space left on device (ENOSPC): a hint");
}

TEST(CheckPointer, NeverSaysSuccess) {
    errno = 0;
    EXPECT_EQ(error_of([] { detail::check_pointer<int>(nullptr, "f"); })->error(), EIO);
}

TEST(CheckZero, TakesAPositiveResultForTheErrnoAndANegativeOneForFailure) {
    EXPECT_FALSE(error_of([] { detail::check_zero(0, "f"); }));
    errno = ENOENT;
    EXPECT_EQ(error_of([] { detail::check_zero(EAGAIN, "f"); })->error(), EAGAIN);
    errno = ENOENT;
    EXPECT_EQ(error_of([] { detail::check_zero(-1, "f"); })->error(), ENOENT);
    errno = 0;
    EXPECT_EQ(error_of([] { detail::check_zero(-1, "f"); })->error(), EIO);
}

TEST(CheckZero, MakesAHintOnlyOnFailure) {
    int made = 0;
    const auto hint = [&made](int error) {
        ++made;
        return "errno " + std::to_string(error);
    };
    detail::check_zero(0, "f", hint);
    EXPECT_EQ(made, 0);
    EXPECT_EQ(error_of([&] { detail::check_zero(EPERM, "f", hint); })->hint(), "errno 1");
    EXPECT_EQ(made, 1);
}

TEST(CheckZero, KeepsTheFailureWhenMakingTheHintFails) {
    const auto hint = [](int) -> std::string { throw Error(EIO, "ibv_query_device_ex"); };
    const auto error = error_of([&] { detail::check_zero(ENOMEM, "ibv_create_cq", hint); });
    ASSERT_TRUE(error);
    EXPECT_STREQ(error->what(), "ibv_create_cq: Cannot allocate memory (ENOMEM)");
}

TEST(Status, IsSuccessOrAnErrno) {
    EXPECT_TRUE(Status());
    EXPECT_TRUE(Status(0).ok());
    EXPECT_FALSE(Status(ENOMEM));
    EXPECT_EQ(Status(ENOMEM).error(), ENOMEM);
    EXPECT_EQ(Status(ENOMEM).code(), std::errc::not_enough_memory);
    EXPECT_EQ(Status(EINVAL), Status(EINVAL));
    EXPECT_NE(Status(EINVAL), Status());
    static_assert(sizeof(Status) == sizeof(int));
}

TEST(Status, ThrowsWhenAskedTo) {
    EXPECT_FALSE(error_of([] { Status().throw_if_failed("ibv_post_send"); }));
    EXPECT_STREQ(error_of([] { Status(ENOMEM).throw_if_failed("ibv_post_send"); })->what(),
                 "ibv_post_send: Cannot allocate memory (ENOMEM)");
}

TEST(Availability, ReadsAnswerReasonRemedy) {
    EXPECT_EQ(to_string(Availability::yes()), "yes");
    EXPECT_EQ(to_string(Availability::yes("up to 64 MiB")), "yes: up to 64 MiB");
    EXPECT_EQ(to_string(Availability::no("no device")), "no: no device");
    EXPECT_EQ(to_string(Availability::no("no device", "load it")), "no: no device; load it");
    EXPECT_TRUE(Availability::yes());
    EXPECT_FALSE(Availability::no("no device"));
}

TEST(TeardownFailure, IsOneLineOnStandardErrorByDefault) {
    ::testing::internal::CaptureStderr();
    detail::report_teardown_failure("ibv_dealloc_pd", EBUSY);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              "rdmabuf: ibv_dealloc_pd failed while freeing a resource: errno 16 (EBUSY)\n");
}

TEST(TeardownFailure, HandlerComesBackWhenReplacedAndNullRestoresTheDefault) {
    const TeardownFailureHandler mine = [](const char*, int) noexcept {};
    const TeardownFailureHandler standard = set_teardown_failure_handler(mine);
    EXPECT_EQ(set_teardown_failure_handler(nullptr), mine);
    EXPECT_EQ(set_teardown_failure_handler(standard), standard);
}

} // namespace
} // namespace rdmabuf
