// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "fabric/ring.hpp"
#include "input.hpp"

// Both ends of a ring whose other end writes anything anywhere, at any time. The memory is on the
// heap, and exactly as long as the ring: AddressSanitizer sees each step out of it.

namespace {

using namespace softverbs::fabric; // NOLINT(google-build-using-namespace)

constexpr std::size_t ring_size = 512;
constexpr std::size_t longest = ring_size / 4;
constexpr unsigned most_steps = 64;

void require(bool holds) {
    if (!holds) {
        std::abort();
    }
}

class Ring {
  public:
    void write(softverbs::fuzz::Input& input) {
        const std::size_t at = input.take<std::uint16_t>() % (ring_size / 8);
        words_[at] = input.take<std::uint64_t>();
    }

    void consume(bool freeze) {
        if (freeze) {
            consumer_.freeze();
        }
        for (unsigned step = 0; step < most_steps; ++step) {
            std::span<const std::byte> record;
            if (consumer_.next(record) != RingConsumer::Next::record) {
                return;
            }
            require(record.size() <= longest);
            require(reinterpret_cast<std::uintptr_t>(record.data()) % 8 == 0);
            unsigned sum = 0;
            for (const std::byte byte : record) {
                sum += static_cast<unsigned>(byte);
            }
            sum_ = sum;
            consumer_.pop();
            require(head_.load() % 8 == 0);
        }
    }

    void produce(std::size_t length) {
        if (producer_.room(length) != RingProducer::Room::enough) {
            return;
        }
        static constexpr std::array<std::byte, longest> bytes{};
        const std::span<const std::byte> part = std::span(bytes).first(length);
        producer_.put({&part, 1}, length);
    }

    /// A header of a kind and a length that may be good, where the consumer may be.
    void write_header(softverbs::fuzz::Input& input) {
        const std::size_t at = input.take<std::uint8_t>() % (ring_size / 8);
        const std::uint64_t length = input.take<std::uint8_t>();
        const std::uint32_t kind = input.take<std::uint8_t>() % 4U;
        words_[at] = record_header(length, RecordKind{kind});
    }
    void set_head(std::uint64_t value) { peers_head_ = value; }

  private:
    std::unique_ptr<std::uint64_t[]> words_ = std::make_unique<std::uint64_t[]>(ring_size / 8);
    std::byte* bytes_ = reinterpret_cast<std::byte*>(words_.get());
    std::atomic<std::uint64_t> head_{0};
    std::atomic<std::uint64_t> peers_head_{0};
    RingConsumer consumer_{RingMemory{bytes_, ring_size, &head_}, longest};
    RingProducer producer_{RingMemory{bytes_, ring_size, &peers_head_}};
    volatile unsigned sum_ = 0;
};

} // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    softverbs::fuzz::Input input(data, size);
    Ring ring;
    while (!input.empty()) {
        switch (input.take<std::uint8_t>() % 6) {
            case 0:
                ring.write(input);
                break;
            case 1:
            case 2:
                ring.write_header(input);
                break;
            case 3:
                ring.consume(input.take<std::uint8_t>() == 0xff);
                break;
            case 4:
                ring.set_head(input.take<std::uint64_t>());
                break;
            default:
                ring.produce(std::min<std::size_t>(input.take<std::uint8_t>(), longest));
                break;
        }
    }
    return 0;
}
