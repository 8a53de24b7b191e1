// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/cm_channel.hpp>

#include "connection/cm_event.hpp"

namespace rdmabuf::cm::detail {

/// An id of a shared event channel and the object that handles its events: rdma_cm_id::context of
/// the id refers to this object, which therefore does not move.
class AsyncId {
  public:
    AsyncId(const AsyncId&) = delete;
    AsyncId& operator=(const AsyncId&) = delete;
    AsyncId(AsyncId&&) = delete;
    AsyncId& operator=(AsyncId&&) = delete;
    /// Destroys the id, which waits until its events are acknowledged.
    virtual ~AsyncId() = default;

    /// The object that handles @p event: that of the listener for a connection request.
    [[nodiscard]] static AsyncId& of(const rdma_cm_event& event) noexcept;

    /// Makes progress with @p event and acknowledges it. Only a lack of memory leaves as an
    /// exception; other failures are an event.
    /// @return the event for the program; nothing when it need not see any
    [[nodiscard]] virtual std::optional<ChannelEvent> handle(Event event) = 0;

    [[nodiscard]] const Id& id() const noexcept { return id_; }
    [[nodiscard]] void* user_data() const noexcept { return user_data_; }
    void set_user_data(void* user_data) noexcept { user_data_ = user_data; }

  protected:
    explicit AsyncId(void* user_data) noexcept : user_data_(user_data) {}

    /// Creates an id on @p channel whose events this object handles.
    [[nodiscard]] Id make_id(const EventChannel& channel, rdma_port_space space);
    /// Creates the id of this object and begins to resolve its address.
    /// @param host         address or name of the peer or multicast group
    /// @param local_host   address to send from; empty for any
    void resolve_address(const EventChannel& channel, rdma_port_space space,
                         const std::string& host, std::uint16_t port, const std::string& local_host,
                         std::chrono::milliseconds timeout);
    void set_id(Id id) noexcept { id_ = std::move(id); }

    [[nodiscard]] ChannelEvent make_event(EventType type) const;
    [[nodiscard]] ChannelEvent make_failure(const Error& error) const;
    /// The step @p function of this id, for errors.
    [[nodiscard]] Step step(const char* function) const;
    /// @throws Error when @p event reports success with a status that means failure
    static void check_status(const Step& step, const rdma_cm_event& event);

  private:
    Id id_;
    void* user_data_;
};

} // namespace rdmabuf::cm::detail
