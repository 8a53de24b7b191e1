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

/// An rdma_cm_id whose event channel several ids share, and the handler of the events of this id.
/// rdma_cm_id::context points to this object, so the object cannot be moved.
class AsyncId {
  public:
    AsyncId(const AsyncId&) = delete;
    AsyncId& operator=(const AsyncId&) = delete;
    AsyncId(AsyncId&&) = delete;
    AsyncId& operator=(AsyncId&&) = delete;
    /// Destroys the id. rdma_destroy_id(3) waits until all events of the id are acknowledged.
    virtual ~AsyncId() = default;

    /// Returns the object that handles @p event. For a connection request, this is the object of
    /// the listener.
    [[nodiscard]] static AsyncId& of(const rdma_cm_event& event) noexcept;

    /// Processes @p event and acknowledges it. Throws only std::bad_alloc: any other failure is
    /// returned as an event of the type `failed`.
    /// @return the event for the program; std::nullopt if @p event does not concern the program
    [[nodiscard]] virtual std::optional<ChannelEvent> handle(Event event) = 0;

    [[nodiscard]] const Id& id() const noexcept { return id_; }
    [[nodiscard]] void* user_data() const noexcept { return user_data_; }
    void set_user_data(void* user_data) noexcept { user_data_ = user_data; }

  protected:
    explicit AsyncId(void* user_data) noexcept : user_data_(user_data) {}

    /// Creates an id on @p channel. This object handles the events of the id.
    [[nodiscard]] Id make_id(const EventChannel& channel, rdma_port_space space);
    /// Creates the id of this object and starts to resolve the address of @p host.
    /// @param host  address or name of the peer or of the multicast group
    void resolve_address(const EventChannel& channel, rdma_port_space space,
                         const std::string& host, std::uint16_t port, const RouteOptions& options,
                         std::chrono::milliseconds timeout);
    void set_id(Id id) noexcept { id_ = std::move(id); }

    [[nodiscard]] ChannelEvent make_event(EventType type) const;
    [[nodiscard]] ChannelEvent make_failure(const Error& error) const;
    /// Returns a description of the step for error messages: the name @p function and the address
    /// of the peer.
    [[nodiscard]] Step step(const char* function) const;
    /// Checks the status of an event whose type reports success.
    /// @throws Error if the status is not 0: the errno value of a negative status, EIO for a
    ///         positive status
    static void check_status(const Step& step, const rdma_cm_event& event);

  private:
    Id id_;
    void* user_data_;
};

} // namespace rdmabuf::cm::detail
