// SPDX-License-Identifier: BSD-3-Clause
#include "terms.hpp"

#include <algorithm>
#include <cerrno>

#include <rdmabuf/error.hpp>

namespace pingpong {

namespace {

// "RPP" and the version of the form.
constexpr std::uint32_t magic = 0x52505001;

template <class T>
void put(std::byte*& at, T value) noexcept {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        *at++ = static_cast<std::byte>(value >> (8 * i));
    }
}

template <class T>
T take(const std::byte*& at) noexcept {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
        value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(*at++) << (8 * i)));
    }
    return value;
}

} // namespace

std::vector<Term> terms_of(const Options& options) {
    return {
        {"--verb", to_string(options.verb)},
        {"--size", std::to_string(options.size)},
        {"--iterations", std::to_string(options.iterations)},
        {"--warmup", std::to_string(options.warmup)},
        {"--validate", options.validate ? "yes" : "no"},
    };
}

Hello Hello::from(const Options& options, const rdmabuf::RemoteRegion& region) {
    return {.verb = options.verb,
            .validate = options.validate,
            .size = options.size,
            .iterations = options.iterations,
            .warmup = options.warmup,
            .region = region};
}

std::array<std::byte, Hello::wire_size> Hello::encode() const noexcept {
    std::array<std::byte, wire_size> bytes{};
    std::byte* at = bytes.data();
    put(at, magic);
    put(at, static_cast<std::uint8_t>(verb));
    put(at, static_cast<std::uint8_t>(validate));
    put(at, std::uint16_t{0});
    put(at, size);
    put(at, iterations);
    put(at, warmup);
    const auto encoded_region = region.encode();
    std::ranges::copy(encoded_region, at);
    return bytes;
}

Hello Hello::decode(std::span<const std::byte> bytes) {
    const std::byte* at = bytes.data();
    if (bytes.size() < wire_size || take<std::uint32_t>(at) != magic) {
        throw rdmabuf::Error(EPROTO, "rdma_connect",
                             "the program at the other end is not this pingpong");
    }
    Hello hello;
    hello.verb = static_cast<Verb>(take<std::uint8_t>(at));
    hello.validate = take<std::uint8_t>(at) != 0;
    at += 2;
    hello.size = take<std::uint64_t>(at);
    hello.iterations = take<std::uint32_t>(at);
    hello.warmup = take<std::uint32_t>(at);
    hello.region =
        rdmabuf::RemoteRegion::decode(std::span(at, rdmabuf::RemoteRegion::wire_size)).value();
    return hello;
}

void Hello::check(const Options& ours) const {
    Options theirs;
    theirs.verb = verb;
    theirs.size = size;
    theirs.iterations = iterations;
    theirs.warmup = warmup;
    theirs.validate = validate;
    const std::vector<Term> expected = terms_of(ours);
    const std::vector<Term> found = terms_of(theirs);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i].value != found[i].value) {
            throw rdmabuf::Error(EPROTO, "rdma_connect",
                                 std::string("the ends disagree on ") + expected[i].name + ": " +
                                     expected[i].value + " here, " + found[i].value +
                                     " there; start both with the same");
        }
    }
}

} // namespace pingpong
