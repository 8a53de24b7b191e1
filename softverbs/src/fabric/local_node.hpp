// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/acceptor.hpp"
#include "fabric/link.hpp"
#include "fabric/node.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/tcp_network.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

/// The endpoint of this process, which owns all its connections: those within this host and those
/// to other hosts.
class LocalNode final : public Node {
  public:
    explicit LocalNode(const NodeOptions& options);
    LocalNode(const LocalNode&) = delete;
    LocalNode& operator=(const LocalNode&) = delete;
    ~LocalNode() override;

    [[nodiscard]] unsigned slot() const noexcept override { return slot_.number(); }
    [[nodiscard]] const std::string& directory() const noexcept override {
        return rendezvous_.path();
    }
    [[nodiscard]] Connection* connect(unsigned slot) noexcept override;
    [[nodiscard]] Connection* connect(const Route& route, unsigned slot) noexcept override;
    unsigned progress(Handler& handler, unsigned budget) override;
    bool service(Handler& handler) override;
    [[nodiscard]] std::uint64_t next_deadline() const noexcept override;
    void clock_runs() noexcept override;
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;
    void wait(std::int64_t timeout_ns) noexcept override;
    void wait_for_wake() noexcept override;
    void wake() noexcept override;
    void abandon() noexcept override;

  private:
    [[nodiscard]] Connection* make_link(unsigned slot);
    /// Handles an event of the epoll instance. Returns false if progress() handles this event.
    bool handle(std::uint64_t tag, Handler& handler);
    void drain_doorbell() noexcept;
    /// Returns whether the process @p pid owns the slot @p slot, which it claims in its "hello"
    /// message.
    [[nodiscard]] bool owns_slot(pid_t pid, unsigned slot) const noexcept;
    void accept_hello(UniqueFd& socket, pid_t pid, ReceivedMessage& received, Handler& handler);
    /// Calls Handler::on_closed() for each closed connection within this host, and frees the
    /// connection.
    void reap(Handler& handler);

    Rendezvous rendezvous_;
    RingSizes ring_sizes_;
    unsigned slots_;
    /// The connections to other hosts. Null if the network between hosts is disabled.
    std::unique_ptr<TcpNetwork> network_;
    Slot slot_;
    UniqueFd epoll_;
    UniqueFd doorbell_;
    UniqueFd wake_;
    Acceptor acceptor_;
    LinkContext context_;
    std::vector<std::unique_ptr<Link>> links_;
    /// Index in links_ of the connection with which the next call of progress() starts. Each call
    /// starts with another connection, so that no connection is always served last.
    std::size_t first_ = 0;
};

} // namespace softverbs::fabric
