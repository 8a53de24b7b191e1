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

/// The node of this process. It owns all connections of this process, both within this host and to
/// other hosts.
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
    void service(Handler& handler) override;
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;
    void wait(std::int64_t timeout_ns) noexcept override;
    void wake() noexcept override;
    void abandon() noexcept override;

  private:
    [[nodiscard]] Connection* make_link(unsigned slot);
    void handle(std::uint64_t tag, Handler& handler);
    void drain_doorbell() noexcept;
    /// Returns whether the process @p pid owns @p slot, as the "hello" message of that process
    /// claims.
    [[nodiscard]] bool owns_slot(pid_t pid, unsigned slot) const noexcept;
    void accept_hello(UniqueFd& socket, pid_t pid, ReceivedMessage& received, Handler& handler);
    /// Calls Handler::on_closed() for each closed link and frees the link.
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
    /// Index of the link with which the next call of progress() starts. Each call starts with
    /// another link, so that no link is always the last.
    std::size_t first_ = 0;
};

} // namespace softverbs::fabric
