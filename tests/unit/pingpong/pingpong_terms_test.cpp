// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/error.hpp>

#include "terms.hpp"

namespace {

using namespace pingpong;
using testing::AllOf;
using testing::HasSubstr;

Options some_options() {
    Options options;
    options.verb = Verb::write_imm;
    options.size = 0x1122334455;
    options.iterations = 20;
    options.warmup = 2;
    options.validate = true;
    return options;
}
const rdmabuf::RemoteRegion region{.address = 0x7f0011223344, .length = 8192, .rkey = 0xabcd};

// The hint of the EPROTO that @p act throws.
std::string protocol_error(const std::function<void()>& act) {
    try {
        act();
    } catch (const rdmabuf::Error& error) {
        EXPECT_EQ(error.error(), EPROTO);
        return error.hint();
    }
    return "none";
}

TEST(PingpongTerms, SurviveTheWayToThePeerWithItsPadding) {
    const auto bytes = Hello::from(some_options(), region).encode();
    static_assert(Hello::wire_size <= 56, "rdma_connect takes no more private data");
    std::vector<std::byte> padded(bytes.begin(), bytes.end());
    padded.resize(56);

    const Hello hello = Hello::decode(padded);
    EXPECT_EQ(hello.verb, Verb::write_imm);
    EXPECT_EQ(hello.size, 0x1122334455U);
    EXPECT_EQ(hello.iterations, 20U);
    EXPECT_EQ(hello.warmup, 2U);
    EXPECT_TRUE(hello.validate);
    EXPECT_EQ(hello.region, region);
    EXPECT_NO_THROW(hello.check(some_options()));
}

TEST(PingpongTerms, WhatNoPingpongHasSentIsRefused) {
    const auto bytes = Hello::from(some_options(), region).encode();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_THAT(protocol_error([&] { (void)Hello::decode(std::span(bytes).first(size)); }),
                    HasSubstr("not this pingpong"));
    }
    auto strange = bytes;
    strange[0] ^= std::byte{1};
    EXPECT_THAT(protocol_error([&] { (void)Hello::decode(strange); }),
                HasSubstr("not this pingpong"));
}

TEST(PingpongTerms, ADifferenceIsNamedWithBothValues) {
    Hello theirs = Hello::from(some_options(), region);
    theirs.size = 77;
    EXPECT_THAT(protocol_error([&] { theirs.check(some_options()); }),
                AllOf(HasSubstr("--size"), HasSubstr("73588229205 here"), HasSubstr("77 there")));
}

TEST(PingpongTerms, EachOfThemMustBeTheSame) {
    const std::vector<std::pair<const char*, std::function<void(Hello&)>>> changes{
        {"--verb", [](Hello& hello) { hello.verb = Verb::read; }},
        {"--size", [](Hello& hello) { hello.size = 1; }},
        {"--iterations", [](Hello& hello) { hello.iterations = 1; }},
        {"--warmup", [](Hello& hello) { hello.warmup = 1; }},
        {"--validate", [](Hello& hello) { hello.validate = false; }},
    };
    ASSERT_EQ(changes.size(), terms_of(some_options()).size());
    for (const auto& [name, change] : changes) {
        Hello theirs = Hello::from(some_options(), region);
        change(theirs);
        EXPECT_THAT(protocol_error([&] { theirs.check(some_options()); }), HasSubstr(name));
    }
}

} // namespace
