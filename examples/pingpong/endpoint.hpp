// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <variant>

#include <rdmabuf/cm.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/remote_region.hpp>

#include "station.hpp"

namespace pingpong {

/// What a message without data says.
enum class Word : std::uint8_t {
    /// The data of a write is there.
    data = 1,
    /// The responder can take the next transfer.
    ready,
    /// The initiator is through with a transfer that the responder does not see, or with all.
    done,
    /// The initiator is still at it.
    alive,
    /// This end has failed, and leaves.
    failed,
};

/// One end, connected: posts requests and waits for what comes of them, for no longer than the
/// timeout. Words travel as the immediate data of messages without any other data.
class Endpoint {
  public:
    using Connection = std::variant<rdmabuf::QueuePair, rdmabuf::cm::Connection>;

    struct Message {
        std::optional<std::uint32_t> immediate;
        std::uint32_t length = 0;
    };

    Endpoint(Station station, Connection connection, const rdmabuf::RemoteRegion& peer,
             const Options& options);

    [[nodiscard]] Station& station() noexcept { return station_; }
    [[nodiscard]] const rdmabuf::QueuePair& queue_pair() const noexcept;
    /// The other end's whole region.
    [[nodiscard]] const rdmabuf::RemoteRegion& peer() const noexcept { return peer_; }

    /// Takes note of @p count requests that were posted to queue_pair() and leave a completion.
    /// @throws rdmabuf::Error when they could not be
    void posted(rdmabuf::Status status, const char* function, unsigned count = 1);
    /// Waits until all that was posted is done.
    void await_sent(const char* what);
    /// Waits for a message. @param what  for the error
    Message await_message(const char* what);
    /// Waits for a message of @p length bytes and no word. @throws rdmabuf::Error EPROTO
    void await_data(std::uint32_t length, const char* what);
    /// Posts a receive for each that was used up. Not needed more often than every few messages.
    void replenish_receives();

    /// Sends 32 bits without any data, and waits until they have arrived.
    void send_immediate(std::uint32_t value);
    /// The same with a word.
    void tell(Word word, std::uint32_t detail = 0);
    /// Waits until the other end says @p word; passes over Word::alive.
    /// @throws rdmabuf::Error EPROTO for anything else
    void await(Word word, std::uint32_t detail, const char* what);
    /// For an end that cannot go on: lets the other know, if it still can.
    void tell_failed() noexcept;

    /// The 24 bits of a number that go with a word.
    [[nodiscard]] static constexpr std::uint32_t immediate(Word word,
                                                           std::uint32_t detail) noexcept {
        return static_cast<std::uint32_t>(word) << 24 | (detail & 0xffffff);
    }
    [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  private:
    /// Takes what completions there are. @return whether there were any
    bool collect();
    template <class Condition>
    void wait_until(Condition condition, const char* what);

    Connection connection_; // first: on rdmacm, the device closes with it
    Station station_;
    rdmabuf::RemoteRegion peer_;
    std::chrono::milliseconds timeout_;

    bool gone_ = false; // the other end has let a wait run out
    unsigned sends_outstanding_ = 0;
    unsigned receives_used_ = 0;
    std::deque<Message> inbox_;
};

} // namespace pingpong
