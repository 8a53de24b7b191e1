// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "fabric/connection.hpp"
#include "fabric/network_settings.hpp"

namespace softverbs::fabric {

// The fabric transports records between processes of one user, on this host and on other hosts. A
// record is a sequence of bytes, which the fabric does not interpret. Each process is a node. The
// slot of a node is its index among the nodes of its host. Two nodes communicate over a connection.
// Within a host, a connection consists of two rings in shared memory for each direction, an eventfd
// (the doorbell) that wakes a sleeping consumer, and a Unix socket that reports the end of the
// other process. Between hosts, a connection is a TCP connection.
//
// The classes of the fabric have no locks. The caller must hold the same lock during all calls
// except Node::wait(), Node::wait_for_wake() and Node::wake().

/// Callbacks that Node::progress() and Node::service() call. A record (a request or a response)
/// from a process of this host is in shared memory, where that process can overwrite it at any
/// time. Therefore a callback must copy each value before it checks the value.
class Handler {
  public:
    virtual ~Handler() = default;
    /// Called for each received request. @p record contains the request and is aligned to 8 bytes.
    /// Returns false if the request cannot be processed now; on_request() is then called again for
    /// it later.
    virtual bool on_request(Connection& from, std::span<const std::byte> record) = 0;
    virtual void on_response(Connection& from, std::span<const std::byte> record) = 0;
    /// Called when there is room again for requests or responses to the other process, after
    /// Connection::send() has returned Sent::full or Connection::has_room() has returned false.
    virtual void on_room(Connection& to) = 0;
    /// Called when a connection was closed, because the other process has ended, has sent invalid
    /// data or cannot be reached. The connection is destroyed after this call.
    virtual void on_closed(Connection& connection) = 0;
    /// Called when the other process has replied to Connection::share(). @p share is the id of the
    /// shared memory. @p error is 0 if the other process has mapped the memory, and otherwise an
    /// errno.
    virtual void on_shared(Connection& to, std::uint32_t share, int error) = 0;
};

struct NodeOptions {
    /// The rendezvous directory, in which the processes of this host find each other. If empty,
    /// default_directory() is used. The directory is created with mode 0700 if it does not exist.
    std::string directory;
    /// Maximum number of processes that can use the directory at the same time.
    unsigned slots = 1024;
    /// Sizes in bytes of the ring for requests and of the ring for responses. Both must be powers
    /// of two from 4 KiB to 64 MiB.
    std::size_t ring_bytes[lanes] = {std::size_t{256} * 1024, std::size_t{128} * 1024};
    /// Settings of the network between hosts. If network.addresses is empty, this network is
    /// disabled.
    NetworkSettings network;
};

class Node {
  public:
    /// Creates the endpoint of this process, and takes a free slot of this host. Throws
    /// std::system_error: EACCES (the directory belongs to another user, or other users can enter
    /// it), ENOSPC (all slots are in use), EMFILE, or the error of a system call. The text suggests
    /// a remedy.
    [[nodiscard]] static std::unique_ptr<Node> open(const NodeOptions& options = {});
    Node() = default;
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    [[nodiscard]] virtual const std::string& directory() const noexcept = 0;
    /// Returns the connection to the process in slot @p slot of this host. Creates the connection
    /// if it does not exist. Records (requests and responses) can be sent immediately. On failure,
    /// returns null and sets errno: ENOENT (no process owns this slot), EACCES (the process belongs
    /// to another user), EMFILE, ENOMEM, EAGAIN (the process accepts no connections now).
    [[nodiscard]] virtual Connection* connect(unsigned slot) noexcept = 0;
    /// Returns the connection to the process in slot @p slot of another host. Creates the
    /// connection if it does not exist. Records can be sent immediately; they are transmitted when
    /// the connection is established. On failure, returns null and sets errno: ENETUNREACH (the
    /// network between hosts is disabled, or there is no route to the host), ENOENT (@p slot is too
    /// large), EMFILE, ENOMEM.
    [[nodiscard]] virtual Connection* connect(const Route& route, unsigned slot) noexcept {
        static_cast<void>(route);
        static_cast<void>(slot);
        errno = ENETUNREACH;
        return nullptr;
    }

    /// Passes at most @p budget received records (requests and responses) to the callbacks of @p
    /// handler. Returns the number of records that were consumed.
    virtual unsigned progress(Handler& handler, unsigned budget) = 0;
    /// Handles socket events: new connections, messages on Unix sockets, TCP handshakes, and the
    /// end of other processes.
    /// Returns whether there was an event.
    virtual bool service(Handler& handler) = 0;

    /// Returns when the next timer of the network between hosts expires, in nanoseconds of
    /// now_ns(). 0: no timer is set.
    [[nodiscard]] virtual std::uint64_t next_deadline() const noexcept { return 0; }
    /// Must be called when the clock runs again after a test has stopped it. Sets the timers.
    virtual void clock_runs() noexcept {}

    /// Prepares wait(): sets a flag, so that other processes wake this process when they send
    /// records (requests and responses). If a record can be delivered already, returns false
    /// without setting the flag; the caller must then call progress(). A request that
    /// Handler::on_request() has rejected does not count until another record has been delivered.
    /// Therefore the caller must call progress() itself when on_request() can accept that request.
    [[nodiscard]] virtual bool arm() noexcept = 0;
    /// Reverts arm(). Called when a thread of this process polls, because other processes then need
    /// not wake this process.
    virtual void disarm() noexcept = 0;
    /// Sleeps until another process wakes this process, a socket has an event, wake() is called, or
    /// the timeout expires. The caller must not hold the lock that protects the Node.
    /// @param timeout_ns  timeout in nanoseconds; negative: no timeout
    virtual void wait(std::int64_t timeout_ns) noexcept = 0;
    /// Sleeps until wake() is called. The caller must not hold the lock that protects the Node.
    virtual void wait_for_wake() noexcept = 0;
    /// Wakes the thread that sleeps in wait() or wait_for_wake(). Any thread may call this
    /// function, even without the lock that protects the Node.
    virtual void wake() noexcept = 0;

    /// Called in a child process after fork(2). Closes the file descriptors that the child process
    /// has inherited from the Node. The parent process is not affected.
    virtual void abandon() noexcept = 0;
};

} // namespace softverbs::fabric
