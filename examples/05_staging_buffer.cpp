// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a message in the device memory of the NIC. For each send, the CPU updates only a few bytes
// with copy_in(), and the NIC sends the whole message without reading host memory over PCIe. This
// saves time for small messages that are sent often, such as a quote of which only the price
// changes.
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/rdmabuf.hpp>

#include "support/loopback.hpp"

namespace {

// copy_in() requires offsets and lengths that are multiples of 4 bytes. Each member of Quote has
// such an offset and such a length.
struct Quote {
    std::array<char, 24> instrument{"10-YEAR NOTE, DEC"};
    std::uint32_t sequence = 0;
    std::uint32_t price = 0; // in hundredths
};

std::span<const std::byte> bytes_of(const std::uint32_t& value) {
    return std::as_bytes(std::span(&value, 1));
}

} // namespace

int main() try {
    const rdmabuf::Context context = rdmabuf::Context::open_first();
    const rdmabuf::ProtectionDomain pd(context);

    // The sender writes the whole message to the device memory once. Later, it writes only the
    // changed members.
    rdmabuf::DeviceMemory staging(context, sizeof(Quote));
    const rdmabuf::DeviceMemoryMR region(pd, staging);
    const Quote quote;
    staging.copy_in(0, std::as_bytes(std::span(&quote, 1)));

    // The receive buffer is in host memory.
    Quote received;
    const rdmabuf::MemoryRegion inbox(pd, &received, sizeof(received));
    const auto [sender, receiver] = examples::connect_loopback(pd);

    constexpr std::array<std::uint32_t, 4> prices{13105, 13107, 13106, 13112};
    std::printf("quotes sent from the memory of %s:\n", context.device_name().c_str());
    for (std::uint32_t sequence = 1; const std::uint32_t price : prices) {
        receiver.qp.post_recv(inbox.sge()).throw_if_failed();
        staging.copy_in(offsetof(Quote, sequence), bytes_of(sequence));
        staging.copy_in(offsetof(Quote, price), bytes_of(price));
        sender.qp.post_send(region.sge()).throw_if_failed();
        // The CPU must not change the message before the send is complete.
        sender.wait();
        receiver.wait();

        std::printf("  #%u  %s  %u.%02u\n", received.sequence, received.instrument.data(),
                    received.price / 100, received.price % 100);
        if (received.sequence != sequence || received.price != price ||
            received.instrument != quote.instrument) {
            std::fprintf(stderr, "The received message differs from the sent one.\n");
            return 1;
        }
        ++sequence;
    }
    std::printf("%zu bytes each, of which the CPU wrote %zu\n", sizeof(Quote),
                sizeof(quote.sequence) + sizeof(quote.price));
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
