// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/transport.hpp>

#include "raw_peer.hpp"
#include "transport_fixture.hpp"

namespace rdmabuf::testing {

using transport::detail::ConnectorProof;
using transport::detail::ConnectResult;
using transport::detail::CtsBody;
using transport::detail::Header;
using transport::detail::Hello;
using transport::detail::Immediate;
using transport::detail::KeyedChunk;
using transport::detail::RtsBody;

/// Appends the bytes of @p part to @p bytes.
template <class T>
void append(std::vector<std::byte>& bytes, const T& part) {
    const auto added = std::as_bytes(std::span(&part, 1));
    bytes.insert(bytes.end(), added.begin(), added.end());
}

/// Returns the bytes of a body and of the regions behind it.
template <class Body>
std::vector<std::byte> bytes_of(const Body& body, const std::vector<KeyedChunk>& chunks) {
    std::vector<std::byte> bytes;
    append(bytes, body);
    for (const KeyedChunk& chunk : chunks) {
        append(bytes, chunk);
    }
    return bytes;
}

/// The connecting end of a channel, made of verbs objects. It sends the messages that a test wants.
class RawConnector {
  public:
    /// Called again and again while the connector waits for a completion.
    std::function<void()> while_waiting = [] {};
    /// Called by connect() when its queue pairs are connected, before it sends the ConnectResult.
    std::function<void()> before_result = [] {};

    /// @param rails                   the number of devices
    /// @param queue_pairs_per_device  the number of queue pairs on each device
    /// @param slots                   the number of receive buffers plus 1
    explicit RawConnector(std::uint32_t rails = 1, std::uint32_t queue_pairs_per_device = 1,
                          std::uint32_t slots = 256)
        : pd_(Context::open_first()),
          cq_(pd_.context(), {.depth = 512}),
          memory_(slots * slot_size),
          region_(pd_, memory_.data(), memory_.size()),
          remote_memory_(remote_size),
          remote_region_(
              pd_, remote_memory_.data(), remote_memory_.size(),
              {.access = Access::local_write | Access::remote_write | Access::remote_read}) {
        for (std::uint32_t rail = 0; rail < rails * queue_pairs_per_device; ++rail) {
            prepared_.emplace_back(pd_, QueuePairOptions{.send_cq = cq_,
                                                         .recv_cq = cq_,
                                                         .max_send_wr = 16,
                                                         .max_recv_wr = slots,
                                                         .extended = ExtendedInterface::off,
                                                         .timeout = 12,
                                                         .retry_count = 7});
            hello.addresses[rail] = prepared_[rail].address().encode();
            hello.probe_rkeys[rail / queue_pairs_per_device] = remote_region_.rkey();
        }
        hello.queue_pairs_per_device = queue_pairs_per_device;
        for (std::size_t i = 1; i < slots; ++i) {
            prepared_[0].post_recv(entry(i, slot_size), i).throw_if_failed();
        }
        // RDMA writes with immediate data use receives without a buffer.
        for (std::size_t rail = 1; rail < prepared_.size(); ++rail) {
            for (int i = 0; i < 32; ++i) {
                prepared_[rail].post_recv(entry(0, 0), 0).throw_if_failed();
            }
        }
        hello.rails = static_cast<std::uint16_t>(rails);
        hello.probe_address = reinterpret_cast<std::uintptr_t>(remote_memory_.data());
    }

    /// The number of eager messages of 0 bytes for which the connector gives credits.
    static constexpr std::uint32_t credits = 64;

    /// The Hello of the connector. Tests change it before connect().
    Hello hello = {.eager_limit = 8192,
                   .unexpected_limit = 4096,
                   .notification_limit = 4096,
                   .depth = 256,
                   .max_message_size = 1U << 30U};
    /// The Hello that connect() has received from the listener.
    Hello listener_hello;

    /// Connects to @p listener. @param result  the ConnectResult of the connector
    /// @param channel  the listener's end of the channel
    /// @return the error of Listener::try_accept()
    std::error_code connect(transport::Listener& listener, std::optional<Channel>& channel,
                            ConnectResult result = 0) {
        socket_.emplace(RawPeer::connect(listener.handle().port()));
        // The bytes on a socket need not have arrived when send(2) returns, so each step calls
        // try_accept() until the listener has read them.
        const auto accept_until = [&](const auto& done) {
            std::error_code error = code(EAGAIN);
            static_cast<void>(eventually([&] { return error != code(EAGAIN) || done(); },
                                         [&] { error = listener.try_accept(channel); }));
            return error;
        };
        const ConnectorProof proof = {.secret = listener.handle().connector_secret()};
        socket_->send(std::as_bytes(std::span(&proof, 1)));
        if (const std::error_code error =
                accept_until([&] { return socket_->available() >= sizeof(Hello); });
            error != code(EAGAIN)) {
            return error;
        }
        Hello& theirs = listener_hello;
        const auto received = socket_->receive(sizeof theirs);
        EXPECT_EQ(received.size(), sizeof theirs);
        std::memcpy(&theirs, received.data(), received.size());
        socket_->send(std::as_bytes(std::span(&hello, 1)));
        if (const std::error_code error =
                accept_until([&] { return socket_->available() >= sizeof(ConnectResult); });
            error != code(EAGAIN)) {
            return error;
        }
        for (std::uint32_t rail = 0;
             rail < theirs.rails * used_per_device() && rail < prepared_.size(); ++rail) {
            connect_queue_pair(rail);
        }
        before_result();
        socket_->send(std::as_bytes(std::span(&result, 1)));
        return accept_until([] { return false; });
    }

    /// Connects a queue pair to that of the listener. Tests call it before connect() does.
    void connect_queue_pair(std::uint32_t rail) {
        queue_pairs_.push_back(std::move(prepared_[rail]).connect(listener_address(rail)));
    }

    /// Sends bytes on the socket.
    void send_on_socket(std::string_view text) { socket_->send(text); }
    /// Closes the socket with a reset.
    void reset_socket() { socket_->reset(); }
    void send(std::span<const std::byte> bytes) {
        std::copy(bytes.begin(), bytes.end(), memory_.begin());
        queue_pairs_[0].post_send(entry(0, bytes.size())).throw_if_failed();
        wait_for(IBV_WC_SEND);
    }
    void send(const Header& header, std::span<const std::byte> body = {}) {
        std::vector<std::byte> bytes;
        append(bytes, header);
        bytes.insert(bytes.end(), body.begin(), body.end());
        send(bytes);
    }
    template <class Body>
    void send(const Header& header, const Body& body, const std::vector<KeyedChunk>& chunks) {
        send(header, bytes_of(body, chunks));
    }
    /// Returns a region with @p length bytes that the channel can write and read by RDMA. It is in
    /// memory that the connector does not use.
    [[nodiscard]] KeyedChunk chunk(std::uint64_t length) const {
        return {.address = hello.probe_address, .length = length, .rkeys = {remote_region_.rkey()}};
    }
    void write_immediate(const Immediate& immediate, std::size_t rail = 0) {
        queue_pairs_[rail]
            .post_write_imm(std::span<const ibv_sge>(), {}, immediate.encode())
            .throw_if_failed();
        wait_for(IBV_WC_RDMA_WRITE);
    }

    /// Writes bytes to memory of the other end by RDMA, with immediate data if there is any.
    /// @return the status of the completion
    ibv_wc_status write(RemoteAddress remote, std::span<const std::byte> bytes,
                        std::optional<Immediate> immediate, std::size_t rail = 0) {
        std::copy(bytes.begin(), bytes.end(), memory_.begin());
        QueuePair& pair = queue_pairs_[rail];
        (immediate ? pair.post_write_imm(entry(0, bytes.size()), remote, immediate->encode())
                   : pair.post_write(entry(0, bytes.size()), remote))
            .throw_if_failed();
        return wait_for(IBV_WC_RDMA_WRITE).status;
    }
    /// Reads bytes of memory of the other end by RDMA.
    /// @return the status of the completion
    ibv_wc_status read(RemoteAddress remote, std::size_t length, std::size_t rail = 0) {
        queue_pairs_[rail].post_read(entry(0, length), remote).throw_if_failed();
        return wait_for(IBV_WC_RDMA_READ).status;
    }

    struct Message {
        Header header;
        std::vector<std::byte> body;

        /// Returns the beginning of the body.
        template <class Body>
        [[nodiscard]] Body as() const {
            Body result;
            EXPECT_GE(body.size(), sizeof result);
            std::memcpy(&result, body.data(), std::min(body.size(), sizeof result));
            return result;
        }
    };
    /// Waits for the next message of the channel.
    [[nodiscard]] Message receive() { return message_of(wait_for(IBV_WC_RECV)); }
    /// Returns the next message of the channel without waiting; std::nullopt if there is none.
    [[nodiscard]] std::optional<Message> try_receive() {
        static_cast<void>(has_message());
        for (std::size_t i = 0; i < unused_.size(); ++i) {
            if (unused_[i].status == IBV_WC_SUCCESS && unused_[i].opcode == IBV_WC_RECV) {
                const WorkCompletion completion = unused_[i];
                unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(i));
                return message_of(completion);
            }
        }
        return std::nullopt;
    }
    /// Returns true if the channel has sent a message that receive() has not returned yet.
    [[nodiscard]] bool has_message() {
        WorkCompletion completion;
        while (cq_.poll(completion) > 0) {
            unused_.push_back(completion);
        }
        return !unused_.empty();
    }

  private:
    static constexpr std::size_t slot_size = 32768;
    /// The size of the memory that chunk() describes.
    static constexpr std::size_t remote_size = 1U << 20U;

    /// Returns the number of queue pairs of the channel on each device.
    [[nodiscard]] std::uint32_t used_per_device() const {
        return std::min(listener_hello.queue_pairs_per_device, hello.queue_pairs_per_device);
    }
    /// Returns the address that the listener has sent for a queue pair of the channel.
    [[nodiscard]] QueuePairAddress listener_address(std::uint32_t rail) const {
        const std::uint32_t device = rail / used_per_device();
        return *QueuePairAddress::decode(
            listener_hello.addresses[device * listener_hello.queue_pairs_per_device +
                                     rail % used_per_device()]);
    }
    [[nodiscard]] ibv_sge entry(std::size_t slot, std::size_t length) {
        return {.addr = reinterpret_cast<std::uintptr_t>(memory_.data() + slot * slot_size),
                .length = static_cast<std::uint32_t>(length),
                .lkey = region_.lkey()};
    }
    /// Returns a message, and posts its receive again.
    [[nodiscard]] Message message_of(const WorkCompletion& completion) {
        const std::byte* const bytes = memory_.data() + completion.wr_id * slot_size;
        Message message;
        std::memcpy(&message.header, bytes, sizeof message.header);
        message.body.assign(bytes + sizeof message.header, bytes + completion.byte_len);
        queue_pairs_[0]
            .post_recv(entry(completion.wr_id, slot_size), completion.wr_id)
            .throw_if_failed();
        return message;
    }
    /// Waits for a completion of @p opcode, or for a failed completion.
    WorkCompletion wait_for(ibv_wc_opcode opcode) {
        for (std::size_t i = 0; i < unused_.size(); ++i) {
            if (unused_[i].opcode == opcode) {
                const WorkCompletion found = unused_[i];
                unused_.erase(unused_.begin() + static_cast<std::ptrdiff_t>(i));
                return found;
            }
        }
        WorkCompletion completion;
        const auto arrived = [&] {
            while (cq_.poll(completion) > 0) {
                if (completion.status != IBV_WC_SUCCESS || completion.opcode == opcode) {
                    return true;
                }
                unused_.push_back(completion);
            }
            return false;
        };
        EXPECT_TRUE(eventually(arrived, [&] { while_waiting(); })) << "no completion has arrived";
        return completion;
    }

    ProtectionDomain pd_;
    CompletionQueue cq_;
    /// The bytes to send, and the receive buffers.
    std::vector<std::byte> memory_;
    MemoryRegion region_;
    /// What the channel may write and read by RDMA.
    std::vector<std::byte> remote_memory_;
    MemoryRegion remote_region_;
    std::vector<PreparedQueuePair> prepared_;
    std::vector<QueuePair> queue_pairs_;
    std::optional<RawPeer> socket_;
    /// The completions that wait_for() has polled and not returned.
    std::vector<WorkCompletion> unused_;
};

/// Tests of a channel of the right endpoint whose other end is a RawConnector.
class RawPeerTest : public TransportTest {
  protected:
    /// Connects the channel. Opens the endpoints first, unless they are open.
    void connect_raw(std::uint32_t queue_pairs_per_device = 1, std::uint32_t slots = 256,
                     std::uint32_t rails = 1) {
        channel_.reset();
        raw_.reset();
        if (!right_end_) {
            open();
        }
        transport::Listener listener = listen();
        raw_.emplace(rails, queue_pairs_per_device, slots);
        raw_->hello.depth = raw_depth_;
        raw_->while_waiting = [this] { right_end().progress(); };
        ASSERT_EQ(raw_->connect(listener, channel_), code(0));
    }
    /// Makes progress until the channel has failed. @return the error
    [[nodiscard]] std::error_code failure() {
        static_cast<void>(eventually([&] { return channel_->state().value() != 0; },
                                     [&] { channel_->progress(); }));
        return channel_->state();
    }

    /// Hello::depth of the next RawConnector of connect_raw().
    std::uint32_t raw_depth_ = 256;
    std::optional<RawConnector> raw_;
    /// The listener's end of the channel.
    std::optional<Channel> channel_;
};

} // namespace rdmabuf::testing
