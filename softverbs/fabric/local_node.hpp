// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "link.hpp"
#include "node.hpp"
#include "rendezvous.hpp"
#include "unique_fd.hpp"

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
    unsigned progress(Handler& handler, unsigned budget) override;
    void service(Handler& handler) override;
    [[nodiscard]] bool arm() noexcept override;
    void disarm() noexcept override;
    void wait(std::int64_t timeout_ns) noexcept override;
    void wake() noexcept override;
    void abandon() noexcept override;

  private:
    /// A socket from which no hello has come yet.
    struct Guest {
        UniqueFd socket;
        pid_t pid;
    };
    using Links = std::vector<std::unique_ptr<Link>>;
    /// What an event is about.
    enum class Source : std::uint32_t { listener, doorbell, guest, link };

    [[nodiscard]] static constexpr std::uint64_t tag_of(Source source, int fd) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(source)} << 32U |
               static_cast<std::uint32_t>(fd);
    }
    [[nodiscard]] bool watch(int fd, Source source) noexcept;
    [[nodiscard]] Connection* make_link(unsigned slot);
    void handle(std::uint64_t tag, Handler& handler);
    void answer_doorbell() noexcept;
    void accept_guests(Handler& handler);
    /// Accepts and closes one, without a descriptor to spare. False: there was none after all.
    [[nodiscard]] bool turn_away() noexcept;
    void hear_guest(int socket, Handler& handler);
    void dismiss(std::vector<Guest>::iterator guest);
    /// False: no hello yet.
    [[nodiscard]] bool greet(Guest& guest, Handler& handler);
    void admit(Guest& guest, Letter& letter, Handler& handler);
    void bury(Handler& handler);

    Rendezvous rendezvous_;
    RingSizes ring_sizes_;
    unsigned slots_;
    Slot slot_;
    UniqueFd epoll_;
    UniqueFd doorbell_;
    UniqueFd wake_;
    /// Given up for a moment to accept a process that has to be turned away for want of
    /// descriptors.
    UniqueFd spare_;
    LinkContext context_;
    std::vector<Guest> guests_;
    Links links_;
    /// Whose turn it is to be first in progress().
    std::size_t first_ = 0;
};

} // namespace softverbs::fabric
