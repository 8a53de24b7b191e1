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
#include "temporary_directory.hpp"
#include "waiting.hpp"

namespace softverbs::fabric::testing {

using rdmabuf::testing::eventually;
using rdmabuf::testing::lasts_at_least;
using rdmabuf::testing::time_limit;

/// The longest duration of Node::wait(), in nanoseconds.
inline constexpr std::int64_t time_limit_ns = std::chrono::nanoseconds(time_limit).count();

/// A rendezvous directory for nodes. The destructor removes it with its contents.
class NodeDirectory : public TemporaryDirectory {
  public:
    /// Returns the sorted names of the files in the directory.
    [[nodiscard]] std::vector<std::string> names() const;
    /// Returns options for a node in this directory with small rings.
    [[nodiscard]] NodeOptions options() const;
};

/// A handler that records its calls.
class Recorder : public Handler {
  public:
    bool on_request(Connection& connection, std::span<const std::byte> record) override;
    void on_response(Connection& from, std::span<const std::byte> record) override;
    void on_room(Connection& to) override;
    void on_closed(Connection& connection) override;
    void on_shared(Connection& to, std::uint32_t share, int error) override;

    std::vector<std::string> requests;
    std::vector<std::string> responses;
    /// The results of sharing: the id of the memory, and the errno.
    std::vector<std::pair<std::uint32_t, int>> shared;
    unsigned rooms = 0;
    unsigned gone = 0;
    /// Number of requests that the handler will still reject.
    unsigned refusals = 0;
    /// The connection of the last request.
    Connection* from = nullptr;
};

/// A node and its handler.
struct Peer {
    explicit Peer(const NodeOptions& options) : node(std::make_unique<Node>(options)) {}

    /// Calls service() and progress() of the node once.
    void turn();

    std::unique_ptr<Node> node;
    Recorder seen;
};

/// Sends a record with the bytes of @p text.
[[nodiscard]] Sent send(Connection& to, Lane lane, std::string_view text);
/// Returns the bytes of a record as text.
[[nodiscard]] std::string text_of(std::span<const std::byte> record);

/// Calls turn() of all peers until @p done returns true. Returns false if the time limit expires.
[[nodiscard]] bool turn_until(std::initializer_list<Peer*> peers,
                              const std::function<bool()>& done);

/// Two peers with an established connection.
struct Connected {
    explicit Connected(const NodeOptions& options);
    Connected(const NodeOptions& first, const NodeOptions& second);

    [[nodiscard]] bool turn_until(const std::function<bool()>& done) {
        return testing::turn_until({&a, &b}, done);
    }

    Peer a;
    Peer b;
    /// The connection objects of a and of b.
    Connection* there = nullptr;
    Connection* back = nullptr;
};

/// Returns the number of open descriptors of this process.
[[nodiscard]] std::size_t open_descriptors();

/// A child process after fork(2). The destructor kills it, and waits for its end.
class Child {
  public:
    /// Starts a child that runs @p body and exits with its result.
    explicit Child(const std::function<int()>& body);
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child();

    [[nodiscard]] pid_t pid() const { return pid_; }
    /// Kills the child and waits for its end.
    void kill();
    /// Waits for the end of the child. Returns its exit status, or -1 if it was killed or the time
    /// limit has expired.
    [[nodiscard]] int join();

  private:
    pid_t pid_;
};

/// Sets an environment variable as long as the object exists.
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
