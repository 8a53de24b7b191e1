// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/link.hpp"
#include "fabric/node.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/tcp_network.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

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
    /// A socket from which no hello has come yet.
    struct Client {
        UniqueFd socket;
        pid_t pid;
    };
    using Links = std::vector<std::unique_ptr<Link>>;
    /// What an event is about.
    enum class Source : std::uint32_t { listener, doorbell, client, link, network };

    [[nodiscard]] static constexpr std::uint64_t tag_of(Source source, int fd) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(source)} << 32U |
               static_cast<std::uint32_t>(fd);
    }
    [[nodiscard]] bool watch(int fd, Source source) noexcept;
    [[nodiscard]] Connection* make_link(unsigned slot);
    void handle(std::uint64_t tag, Handler& handler);
    void answer_doorbell() noexcept;
    void accept_clients(Handler& handler);
    /// Accepts and closes one, without a descriptor to spare. False: there was none after all.
    [[nodiscard]] bool reject_client() noexcept;
    void read_client(int socket, Handler& handler);
    void drop_client(std::vector<Client>::iterator client);
    /// False: no hello yet.
    [[nodiscard]] bool greet(Client& client, Handler& handler);
    /// Whether process @p pid has the slot that it claims in its hello.
    [[nodiscard]] bool owns_slot(pid_t pid, unsigned slot) const noexcept;
    void admit(Client& client, ReceivedMessage& received, Handler& handler);
    void reap(Handler& handler);

    Rendezvous rendezvous_;
    RingSizes ring_sizes_;
    unsigned slots_;
    /// Null: there is no network between hosts.
    std::unique_ptr<TcpNetwork> network_;
    Slot slot_;
    UniqueFd epoll_;
    UniqueFd doorbell_;
    UniqueFd wake_;
    /// Given up for a moment to accept a process that has to be turned away for want of
    /// descriptors.
    UniqueFd spare_;
    LinkContext context_;
    std::vector<Client> clients_;
    Links links_;
    /// Whose turn it is to be first in progress().
    std::size_t first_ = 0;
};

} // namespace softverbs::fabric
