// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "fabric/node.hpp"
#include "input.hpp"
#include "raw_socket.hpp"
#include "temporary_directory.hpp"

// A node to whose socket anything is said, with any descriptors, and in whose rings anything is
// written once it has been persuaded to share some.

namespace {

using namespace softverbs::fabric; // NOLINT(google-build-using-namespace)
using softverbs::fuzz::Input;

/// Reads all bytes, answers, and pulls what was offered.
class Reader : public Handler {
  public:
    bool on_request(Connection& from, std::span<const std::byte> record) override {
        read(record);
        static_cast<void>(from.send(Lane::responses, {&record, 1}));
        std::array<std::byte, 16> into{};
        static_cast<void>(from.pull(sum_, 1, into));
        return sum_ % 5 != 0;
    }
    void on_response(Connection& /*from*/, std::span<const std::byte> record) override {
        read(record);
    }
    void on_room(Connection& to) override {
        static_cast<void>(to.has_room(Lane::requests, to.max_record()));
    }
    void on_closed(Connection& connection) override { sum_ = connection.slot(); }
    void on_shared(Connection& /*to*/, std::uint32_t share, int error) override {
        sum_ = share + static_cast<unsigned>(error);
    }

  private:
    void read(std::span<const std::byte> record) {
        for (const std::byte byte : record) {
            sum_ = sum_ + static_cast<unsigned>(byte);
        }
    }
    volatile unsigned sum_ = 0;
};

class Scene {
  public:
    Scene() {
        NodeOptions options;
        options.directory = directory_.path();
        options.slots = 16;
        options.ring_bytes[0] = 4096;
        options.ring_bytes[1] = 4096;
        node_ = std::make_unique<Node>(options);
    }
    Scene(const Scene&) = delete;
    Scene& operator=(const Scene&) = delete;

    void play(Input input) {
        {
            const testing::Impostor impostor(*node_, input.take<std::uint8_t>() % 17, {4096, 4096});
            for (unsigned step = 0; step < 64 && !input.empty(); ++step) {
                act(impostor, input);
            }
        }
        // The end is noticed in the first round, and its last records are handed out in the others.
        for (unsigned round = 0; round < 4; ++round) {
            turn();
        }
    }

  private:
    void act(const testing::Impostor& impostor, Input& input) {
        switch (input.take<std::uint8_t>() % 6) {
            case 0:
                impostor.greet();
                break;
            case 1: {
                const auto descriptors = choose(impostor, input.take<std::uint8_t>());
                impostor.socket.say(input.take(input.take<std::uint8_t>()), descriptors);
                break;
            }
            case 2: {
                const auto descriptors = choose(impostor, input.take<std::uint8_t>());
                Message message = impostor.hello;
                message.kind = MessageKind{input.take<std::uint8_t>()};
                message.number = input.take<std::uint8_t>();
                message.error = input.take<std::uint16_t>();
                message.length = input.take<std::uint32_t>();
                message.address = input.take<std::uint64_t>();
                impostor.socket.say(message, descriptors);
                break;
            }
            case 3: {
                // Anywhere in the two directions' indices and in the rings.
                const std::size_t at = input.take<std::uint16_t>() % (5 * 4096 / 8);
                const auto value = input.take<std::uint64_t>();
                auto* const words = reinterpret_cast<std::uint64_t*>(
                    &impostor.memory.outgoing(LinkMemory::Side::connector));
                std::atomic_ref<std::uint64_t>(words[at]).store(value);
                break;
            }
            case 4:
                use(input.take<std::uint8_t>());
                break;
            default:
                turn();
                break;
        }
    }

    /// Up to four descriptors of different worth.
    [[nodiscard]] std::vector<int> choose(const testing::Impostor& impostor,
                                          unsigned wanted) const {
        std::vector<int> chosen;
        const std::array<int, 4> all{impostor.file.get(), impostor.doorbell.get(),
                                     directory_file_.get(), loose_file_.get()};
        for (std::size_t each = 0; each < all.size(); ++each) {
            if ((wanted >> each & 1U) != 0) {
                chosen.push_back(all[each]);
            }
        }
        return chosen;
    }

    /// What the program of the node does meanwhile.
    void use(unsigned how) {
        Connection* const to = node_->connect(how % 16);
        if (to == nullptr) {
            return;
        }
        const std::vector<std::byte> bytes(how * to->max_record() / 255);
        const std::span<const std::byte> part(bytes);
        static_cast<void>(to->send(Lane::requests, {&part, 1}));
        static_cast<void>(to->share(how + 1, loose_file_.get(), 4096));
        to->unshare(how / 2);
        static_cast<void>(to->taken());
        static_cast<void>(node_->arm());
    }

    void turn() {
        node_->service(reader_);
        node_->progress(reader_, 256);
        if (node_->arm()) {
            node_->disarm();
        }
    }

    TemporaryDirectory directory_;
    std::unique_ptr<Node> node_;
    Reader reader_;
    UniqueFd directory_file_{::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    UniqueFd loose_file_{::memfd_create("fuzz", MFD_CLOEXEC)};
};

} // namespace

// NOLINTNEXTLINE(readability-identifier-naming): the fuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Scene scene;
    scene.play(Input(data, size));
    return 0;
}
