// SPDX-License-Identifier: BSD-3-Clause
#include "driver_fixture.hpp"

namespace rdmabuf::testing {

using ::testing::AllOf;
using ::testing::HasSubstr;

DriverTest::DriverTest() {
    fake::reset(2);
    allocator_ = driver_row().make(0);
    exporter_ = driver_row().for_program ? driver_row().for_program() : allocator_;
    if (driver_row().begin) {
        driver_row().begin(*allocator_);
    }
}

DriverTest::~DriverTest() {
    allocator_.reset();
    exporter_.reset();
    if (driver_row().end) {
        driver_row().end();
    }
    fake::reset(2);
    EXPECT_EQ(open_descriptors(), descriptors_) << "descriptors were leaked";
}

std::vector<std::byte> DriverTest::put(std::uint64_t address, std::size_t length, unsigned seed) {
    const std::span bytes(static_cast<std::byte*>(fake::bytes(address)), length);
    fill(bytes, seed);
    return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> DriverTest::part(const std::vector<std::byte>& bytes, std::size_t offset,
                                        std::size_t length) {
    const auto start = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    return {start, start + static_cast<std::ptrdiff_t>(length)};
}

std::optional<AddedRange> DriverTest::add(std::uint64_t address, std::size_t length,
                                          std::uint64_t generation) const {
    return driver_row().add
               ? std::optional(driver_row().add(*exporter_, address, length, generation))
               : std::nullopt;
}

std::optional<Error> DriverTest::refusal(std::uint64_t address, std::size_t length,
                                         MappingKind mapping) const {
    return error_of([&] {
        const auto added = add(address, length);
        (void)exporter_->export_range(address, length, mapping);
    });
}

::testing::Matcher<std::optional<Error>> is_error_of(const DriverFailure& failure) {
    // The symbols of libcuda.so.1 have versions, and the fake of Level Zero distinguishes exports.
    std::string function = failure.function.substr(0, failure.function.find('('));
    if (function.starts_with("cu") && function.ends_with("_v2")) {
        function.resize(function.size() - 3);
    }
    return ::testing::Optional(
        AllOf(::testing::Property("error", &Error::error, failure.error),
              ::testing::Property("function", &Error::function, ::testing::StartsWith(function)),
              ::testing::Property("what", &Error::what, HasSubstr(failure.text))));
}

} // namespace rdmabuf::testing
