// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/node.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric::testing {

/// How long anything may take that takes no time. Sanitizers and busy machines are slow.
inline constexpr std::chrono::seconds patience{30};

/// An empty directory of this user's, removed with all in it.
class TemporaryDirectory {
  public:
    TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    ~TemporaryDirectory();

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Names of what is in the rendezvous, sorted.
    [[nodiscard]] std::vector<std::string> names() const;
    /// A node's options: this directory, small rings.
    [[nodiscard]] NodeOptions options() const;

  private:
    std::string path_;
};

/// Keeps what it is given.
class Recorder : public Handler {
  public:
    bool on_request(Connection& connection, std::span<const std::byte> record) override;
    void on_response(Connection& from, std::span<const std::byte> record) override;
    void on_room(Connection& to) override;
    void on_closed(Connection& connection) override;
    void on_shared(Connection& to, std::uint32_t share, int error) override;

    std::vector<std::string> requests;
    std::vector<std::string> responses;
    /// By share, with the errno.
    std::vector<std::pair<std::uint32_t, int>> shared;
    unsigned rooms = 0;
    unsigned gone = 0;
    /// Requests still to be refused.
    unsigned refusals = 0;
    /// Where the last request came from.
    Connection* from = nullptr;
};

/// A node and what came to it.
struct Peer {
    explicit Peer(const NodeOptions& options) : node(Node::open(options)) {}

    /// Reads sockets and rings once.
    void turn();

    std::unique_ptr<Node> node;
    Recorder seen;
};

/// Sends one record, made of one part.
[[nodiscard]] Sent send(Connection& to, Lane lane, std::string_view text);
/// A record's text.
[[nodiscard]] std::string text_of(std::span<const std::byte> record);

/// Lets all peers turn until @p done. False: it was not within patience.
[[nodiscard]] bool turn_until(std::initializer_list<Peer*> peers,
                              const std::function<bool()>& done);

/// A connection between two peers on which each knows the other.
struct Connected {
    explicit Connected(const NodeOptions& options);
    Connected(const NodeOptions& first, const NodeOptions& second);

    [[nodiscard]] bool turn_until(const std::function<bool()>& done) {
        return testing::turn_until({&a, &b}, done);
    }

    Peer a;
    Peer b;
    /// From a to b, and back.
    Connection* there = nullptr;
    Connection* back = nullptr;
};

/// Open descriptors of this process.
[[nodiscard]] std::size_t open_descriptors();

/// A child process by fork(2), killed and reaped at the end.
class Child {
  public:
    /// Runs @p body, and ends with what it returns.
    explicit Child(const std::function<int()>& body);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();

    [[nodiscard]] pid_t pid() const { return pid_; }
    /// SIGKILL, and waits for the end.
    void kill();
    /// Waits for the end: the exit status, or -1 if it was killed or has not ended within patience.
    [[nodiscard]] int join();

  private:
    pid_t pid_;
};

/// Sets an environment variable for a while.
class Environment {
  public:
    Environment(const char* name, const char* value);
    Environment(const Environment&) = delete;
    Environment& operator=(const Environment&) = delete;
    ~Environment();

  private:
    const char* name_;
    std::string old_;
    bool was_set_;
};

} // namespace softverbs::fabric::testing
