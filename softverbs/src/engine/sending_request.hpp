// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "implementation.hpp"

namespace softverbs {

/// Index of the device that an address leads to; -1: none.
[[nodiscard]] int device_at(const ibv_ah_attr& address);

/// What a request becomes when its turn has come.
enum class Step : std::uint8_t { sent, wait, again, failed };

/// One request of a queue pair, being sent.
class SendingRequest {
  public:
    SendingRequest(Engine::Implementation& engine, Qp& qp, std::uint64_t position)
        : engine_(engine),
          qp_(qp),
          requester_(qp.requester),
          position_(position),
          request_(qp.sends[position]) {}

    Step operator()();

  private:
    Step local();
    Step datagram();
    Step connected();
    /// For requests before this one.
    [[nodiscard]] bool has_to_wait() const;
    /// Not before those that came earlier are done.
    Step fail_in_turn(ibv_wc_status status);
    [[nodiscard]] bool wants_answer() const;
    [[nodiscard]] ibv_wc_status open(EntryList& entries, bool write);
    void fill_header(Outgoing& packet) const;
    [[nodiscard]] std::uint64_t data_length() const;
    /// Sends the whole request, or as much of it as there is room for.
    Step send_data(const EntryList& entries);
    Step send_read();
    std::optional<fabric::Sent> send_part(const EntryList& entries, std::uint64_t length,
                                          bool last);
    bool send_segments(const EntryList& entries, fabric::Sent& sent);
    Step after(fabric::Sent sent);

    Engine::Implementation& engine_;
    Qp& qp_;
    Requester& requester_;
    std::uint64_t position_;
    SendRequest& request_;
    fabric::Connection* to_ = nullptr;
};

} // namespace softverbs
