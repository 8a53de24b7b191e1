// SPDX-License-Identifier: BSD-3-Clause
// Exceptions that leave an exporter which is not part of the library.
#include <cerrno>
#include <functional>
#include <future>
#include <new>
#include <ostream>
#include <stdexcept>
#include <string>
#include <system_error>

#include <rdmabuf/registration_cache.hpp>

#include "fails_with.hpp"
#include "registration_fixture.hpp"

namespace rdmabuf::testing {
namespace {

/// An exception, and the Error that the library makes of it.
struct Thrown {
    std::string name;
    std::function<void()> raise;
    int error;
    std::string text;
};

/// For GoogleTest, which looks for this name.
void PrintTo(const Thrown& thrown, std::ostream* out) { // NOLINT(readability-identifier-naming)
    *out << thrown.name;
}

class ExporterExceptions : public RegistrationTest, public ::testing::WithParamInterface<Thrown> {
  protected:
    [[nodiscard]] std::uintptr_t host_address() const {
        return reinterpret_cast<std::uintptr_t>(host_memory_.data());
    }
};

TEST_P(ExporterExceptions, OfFindAreErrorsOfTheResolver) {
    exporter_->on_find = GetParam().raise;
    EXPECT_THAT(error_of([&] { static_cast<void>(resolver_.find(device_address())); }),
                fails_with(GetParam().error, GetParam().text));
}

TEST_P(ExporterExceptions, OfFindDoNotHideTheExporterThatKnowsTheAddress) {
    exporter_->on_find = GetParam().raise;
    const auto owner = std::make_shared<FakeExporter>(registered_size);
    const Resolver resolver({exporter_, owner});
    EXPECT_EQ(resolver.find(device_address()).exporter, owner);
    const rdmabuf::Registration region =
        register_memory(basics_.pd, resolver, device_address(), registered_size);
    EXPECT_EQ(region.path(), RegistrationPath::dmabuf);
    ASSERT_EQ(region.trail().size(), 2U);
    EXPECT_EQ(region.trail()[0].error, GetParam().error);
}

TEST_P(ExporterExceptions, OfFindDoNotMakeItsMemoryHostMemory) {
    exporter_->on_find = GetParam().raise;
    EXPECT_THAT(refusal(host_address(), 64), fails_with(GetParam().error, GetParam().text));
    expect_untouched();
}

TEST_P(ExporterExceptions, OfFindForTheLastByteDoNotMakeARangeHostMemory) {
    exporter_->on_find = [this] {
        if (exporter_->finds > 1) {
            GetParam().raise();
        }
    };
    EXPECT_THAT(refusal(host_address(), 64),
                fails_with(GetParam().error, GetParam().text,
                           "an exporter cannot determine if it owns a part of the range"));
    expect_untouched();
}

TEST_P(ExporterExceptions, OfExportRangeAreErrors) {
    exporter_->on_export = GetParam().raise;
    EXPECT_THAT(
        error_of([&] { static_cast<void>(resolver_.export_range(device_address(), 4096)); }),
        fails_with(GetParam().error, GetParam().text));
    Trail trail;
    EXPECT_THAT(refusal({.trail = &trail}), fails_with(GetParam().error, GetParam().text));
    EXPECT_EQ(trail[0].error, GetParam().error);
    EXPECT_TRUE(registrations().empty());
}

TEST_P(ExporterExceptions, DoNotRevokeARegistrationThatIsVerified) {
    rdmabuf::Registration region = device();
    exporter_->on_find = GetParam().raise;
    EXPECT_THAT(error_of([&] { static_cast<void>(region.verify()); }),
                fails_with(GetParam().error, GetParam().text));
    EXPECT_EQ(region.state(), RegistrationState::registered);
}

TEST_P(ExporterExceptions, AreErrorsOfTheRegistrationCache) {
    RegistrationCache cache(basics_.pd, resolver_, {.policy = CachePolicy::checked});
    cache.acquire(device_address(), 4096, Access::local_write).reset();
    exporter_->on_find = GetParam().raise;
    EXPECT_FALSE(cache.find(device_address(), 4096, Access::local_write));
    EXPECT_THAT(
        error_of([&] { cache.acquire(device_address(), 4096, Access::local_write).reset(); }),
        fails_with(GetParam().error, GetParam().text));
}

INSTANTIATE_TEST_SUITE_P(
    All, ExporterExceptions,
    ::testing::Values(
        Thrown{"Error", [] { throw Error(ENODEV, "acmeQuery", "no driver"); }, ENODEV, "no driver"},
        Thrown{"Error_without_an_errno", [] { throw Error(0, "acmeQuery", "no driver"); }, EIO,
               "the exporter 'fake' threw std::system_error: acmeQuery: Success (0): no driver"},
        Thrown{"system_error",
               [] { throw std::system_error(EBUSY, std::generic_category(), "query"); }, EBUSY,
               "the exporter 'fake' threw std::system_error: query"},
        Thrown{"error_of_another_category",
               [] { throw std::system_error(make_error_code(std::future_errc{})); }, EIO,
               "the exporter 'fake' threw std::system_error: "},
        Thrown{"exception", [] { throw std::runtime_error("no answer"); }, EIO,
               "the exporter 'fake' threw a std::exception: no answer"},
        Thrown{"int", [] { throw 7; }, EIO,
               "the exporter 'fake' threw an object that is not a std::exception"}),
    [](const auto& test) { return test.param.name; });

class ExporterBadAlloc : public RegistrationTest {};

TEST_F(ExporterBadAlloc, PassesUnchanged) {
    exporter_->on_find = [] { throw std::bad_alloc(); };
    EXPECT_THROW(static_cast<void>(resolver_.find(device_address())), std::bad_alloc);
    EXPECT_THROW(static_cast<void>(device()), std::bad_alloc);
    exporter_->on_find = nullptr;
    exporter_->on_export = [] { throw std::bad_alloc(); };
    EXPECT_THROW(static_cast<void>(device()), std::bad_alloc);
    EXPECT_TRUE(registrations().empty());
}

} // namespace
} // namespace rdmabuf::testing
