// SPDX-License-Identifier: BSD-3-Clause
// Bytes of an unknown peer on the sockets of the handshake: to transport::Listener, and to
// transport::Connector.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "raw_connector.hpp"
#include "raw_peer.hpp"
#include "transport_scene.hpp"

namespace rdmabuf::testing {
namespace {

using transport::Handle;
using transport::Listener;

class HandshakeScene : public TransportTest {
  public:
    HandshakeScene() {
        options_ = {.depth = 16,
                    .send_depth = 16,
                    .eager_limit = 1024,
                    .receive_buffers = 16,
                    .send_buffers = 8,
                    .timeout = 10ms,
                    .heartbeat = 10ms,
                    .handshake = 10ms,
                    .linger = 1ms,
                    .ack_timeout = 10,
                    .retry_count = 2};
    }

    void play(softverbs::fuzz::Input input) {
        input_ = input;
        const std::uint32_t role = below(3);
        if (role == 2) {
            // Unknown peers must not prevent this one from connecting.
            options_.handshake = 10'000ms;
        }
        open();
        raw_.emplace(1, 1, 2);
        queue_pairs_ = softverbs_live(SOFTVERBS_QP);
        if (role == 0) {
            play_connector();
        } else {
            play_listener(role == 2);
        }
    }

  private:
    void TestBody() override {}

    /// A connection, and all bytes that the peer has sent on it.
    struct Peer {
        RawPeer socket;
        std::vector<std::byte> sent;
        bool open = true;
    };

    [[nodiscard]] std::uint32_t below(std::uint32_t end) {
        return input_.take<std::uint8_t>() % end;
    }

    void play_listener(bool another_connects) {
        auto opened = right_end().listen("127.0.0.1");
        ASSERT_TRUE(opened.ok()) << opened.message();
        Listener listener = *std::move(opened);
        const Handle& handle = listener.handle();
        std::vector<Peer> peers;
        const auto advance = [&] {
            accept(listener);
            for (const Peer& peer : peers) {
                // A peer that has not sent the secret receives nothing and costs nothing.
                EXPECT_TRUE(!peer.open || is_proof(peer.sent, handle) ||
                            peer.socket.available() == 0);
            }
            if (std::ranges::none_of(
                    peers, [&](const Peer& peer) { return is_proof(peer.sent, handle); })) {
                EXPECT_EQ(softverbs_live(SOFTVERBS_QP), queue_pairs_);
            }
        };
        for (int step = 0; step < 48 && !input_.empty(); ++step) {
            if (peers.empty() || (peers.size() < 4 && below(8) == 0)) {
                peers.push_back({.socket = RawPeer::connect(handle.port()), .sent = {}});
            }
            speak(peers[below(4) % peers.size()], handle, advance);
            advance();
        }
        if (another_connects) {
            expect_to_connect(listener);
        } else {
            expect_end(advance, [] { return true; });
        }
        for (Peer& peer : peers) {
            end(peer);
        }
    }
    static void accept(Listener& listener) {
        std::optional<Channel> channel;
        const std::error_code error = listener.try_accept(channel);
        if (channel) {
            use(*std::move(channel));
        } else if (error != code(EAGAIN)) {
            expect_details(listener.error_info());
        }
    }
    void play_connector() {
        const RawListener listener;
        Handle::Secret secret{};
        secret.fill(std::byte{7});
        const Handle handle({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, 0,
                            listener.port(), secret, secret);
        auto connector = left_end().start_connect(handle);
        ASSERT_TRUE(connector.ok()) << connector.message();
        Peer peer = {.socket = listener.accept(), .sent = {}};
        bool ended = false;
        const auto advance = [&] {
            std::optional<Channel> channel;
            const std::error_code error = ended ? code(EAGAIN) : connector->try_connect(channel);
            if (channel) {
                ended = true;
                use(*std::move(channel));
            } else if (error != code(EAGAIN)) {
                ended = true;
                expect_details(connector->error_info());
            }
            if (!is_hello(peer.sent, handle)) {
                EXPECT_EQ(softverbs_live(SOFTVERBS_QP), queue_pairs_);
            }
        };
        for (int step = 0; step < 48 && !input_.empty(); ++step) {
            speak(peer, handle, advance);
            advance();
        }
        expect_end(advance, [&] { return ended || peer.sent.size() < sizeof(Hello); });
        end(peer);
    }

    /// Sends bytes, or closes the connection.
    template <class Advance>
    void speak(Peer& peer, const Handle& handle, const Advance& advance) {
        if (!peer.open) {
            return;
        }
        switch (below(8)) {
            case 0:
                send(peer, ConnectorProof{.secret = handle.connector_secret()}, advance);
                break;
            case 1:
            case 2: {
                Hello hello = raw_->hello;
                hello.secret = handle.listener_secret();
                send(peer, hello, advance);
                break;
            }
            case 3:
                send(peer, ConnectResult{below(4) == 0 ? input_.take<std::uint32_t>() : 0},
                     advance);
                break;
            case 4: {
                const auto bytes = input_.take(below(256));
                say_bytes(peer, bytes);
                break;
            }
            case 5:
                if (below(4) == 0) {
                    peer.open = false;
                    below(2) == 0 ? peer.socket.close() : peer.socket.reset();
                }
                break;
            default:
                if (const std::size_t size = peer.socket.available(); size > 0) {
                    static_cast<void>(peer.socket.receive(size));
                }
                break;
        }
    }
    /// Sends a message, in which some bytes may be changed, in one or two pieces.
    template <class Message, class Advance>
    void send(Peer& peer, const Message& message, const Advance& advance) {
        std::vector<std::byte> bytes;
        append(bytes, message);
        for (std::uint32_t changes = below(4); changes > 1; --changes) {
            // The addresses of the queue pairs are at the end of a Hello.
            const std::size_t at =
                (below(2) == 0 ? below(104) : input_.take<std::uint16_t>()) % bytes.size();
            bytes[at] = below(2) == 0 ? bytes[at] ^ input_.take<std::byte>()
                                      : static_cast<std::byte>(below(6));
        }
        const std::size_t first =
            below(4) == 0 ? input_.take<std::uint16_t>() % bytes.size() : bytes.size();
        say_bytes(peer, std::span(bytes).first(first));
        if (first < bytes.size()) {
            advance();
            say_bytes(peer, std::span(bytes).subspan(first));
        }
    }
    static void say_bytes(Peer& peer, std::span<const std::byte> bytes) {
        peer.sent.insert(peer.sent.end(), bytes.begin(), bytes.end());
        peer.socket.send(bytes);
    }
    static void end(Peer& peer) {
        if (peer.open) {
            // This end of the connection does not remain in the state TIME_WAIT.
            peer.socket.reset();
        }
    }

    [[nodiscard]] static bool is_proof(const std::vector<std::byte>& sent, const Handle& handle) {
        ConnectorProof proof;
        if (sent.size() < sizeof proof) {
            return false;
        }
        std::memcpy(&proof, sent.data(), sizeof proof);
        return proof.magic == ConnectorProof::expected_magic &&
               proof.secret == handle.connector_secret();
    }
    [[nodiscard]] static bool is_hello(const std::vector<std::byte>& sent, const Handle& handle) {
        Hello hello;
        if (sent.size() < sizeof hello) {
            return false;
        }
        std::memcpy(&hello, sent.data(), sizeof hello);
        return hello.magic == Hello::expected_magic && hello.version == Hello::current_version &&
               hello.secret == handle.listener_secret();
    }
    static void expect_details(const ErrorInfo& error) {
        EXPECT_NE(error.error(), 0);
        EXPECT_NE(error.error(), EAGAIN);
        EXPECT_FALSE(error.message().empty());
    }

    /// Each handshake ends within EndpointOptions::handshake, and then has no queue pairs.
    template <class Advance, class Ended>
    void expect_end(const Advance& advance, const Ended& ended) {
        const auto all_ended = [&] {
            return softverbs_live(SOFTVERBS_QP) == queue_pairs_ && ended();
        };
        ASSERT_TRUE(eventually(all_ended, advance)) << "a handshake has not ended";
    }
    void expect_to_connect(Listener& listener) {
        auto connector = left_end().start_connect(listener.handle());
        ASSERT_TRUE(connector.ok()) << connector.message();
        std::error_code error = code(EAGAIN);
        while (error == code(EAGAIN)) {
            error = connector->try_connect(left_);
            accept(listener);
        }
        EXPECT_EQ(error, code(0)) << connector->error_info().message();
        left_.reset();
    }
    /// The requests of a new channel end, whatever its peer is.
    static void use(Channel channel) {
        EXPECT_EQ(channel.state(), code(0));
        static_cast<void>(channel.close());
    }

    softverbs::fuzz::Input input_{nullptr, 0};
    /// Its queue pairs are those of the Hello that the peers send.
    std::optional<RawConnector> raw_;
    /// The number of queue pairs that exist while there is no handshake and no channel.
    std::size_t queue_pairs_ = 0;
};

} // namespace
} // namespace rdmabuf::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    rdmabuf::testing::play_scene<rdmabuf::testing::HandshakeScene>({data, size});
    return 0;
}
