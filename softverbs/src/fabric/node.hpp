// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/acceptor.hpp"
#include "fabric/connection.hpp"
#include "fabric/link.hpp"
#include "fabric/network_settings.hpp"
#include "fabric/rendezvous.hpp"
#include "fabric/tcp_network.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs::fabric {

// The fabric transports records between processes of one user, on this host and on other hosts. A
// record is a sequence of bytes, which the fabric does not interpret. Each process is a node. The
// slot of a node is its index among the nodes of its host. Two nodes communicate over a connection.
// Within a host, a connection consists of two rings in shared memory for each direction, an eventfd
// (the doorbell) that wakes a sleeping consumer, and a Unix socket that reports the end of the
// other process. Between hosts, a connection is a TCP connection.
//
// The classes of the fabric have no locks. The caller must hold the same lock during all calls
// except Node::wait(), Node::wait_for_wake(), Node::wake() and Node::remove_files().

struct NodeOptions {
    /// The rendezvous directory, in which the processes of this host find each other. If empty,
    /// default_directory() is used. The directory is created with mode 0700 if it does not exist.
    std::string directory;
    /// Maximum number of processes that can use the directory at the same time.
    unsigned slots = max_slots;
    /// Sizes in bytes of the ring for requests and of the ring for responses. Both must be powers
    /// of two from 4 KiB to 64 MiB.
    std::size_t ring_bytes[lanes] = {std::size_t{256} * 1024, std::size_t{128} * 1024};
    /// Whether connections within this host read and write the memory of the other process.
    bool reaches_memory = true;
    /// Settings of the network between hosts. If network.addresses is empty, this network is
    /// disabled.
    NetworkSettings network;
};

/// The endpoint of this process, which owns all its connections: those within this host and those
/// to other hosts.
class Node {
  public:
    /// Takes a free slot of this host. Throws std::system_error: EACCES (the directory belongs to
    /// another user, or other users can enter it), ENOSPC (all slots are in use), EMFILE, or the
    /// error of a system call. The text suggests a remedy.
    explicit Node(const NodeOptions& options = {});
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node();

    [[nodiscard]] unsigned slot() const noexcept { return slot_.number(); }
    [[nodiscard]] const Rendezvous& rendezvous() const noexcept { return rendezvous_; }
    /// Returns the connection to the process in slot @p slot of this host. Creates the connection
    /// if it does not exist. Records (requests and responses) can be sent immediately. On failure,
    /// returns null and sets errno: ENOENT (no process owns this slot), EACCES (the process belongs
    /// to another user), EMFILE, ENOMEM, EAGAIN (the process accepts no connections now).
    [[nodiscard]] Connection* connect(unsigned slot) noexcept;
    /// Returns the connection to the process in slot @p slot of another host. Creates the
    /// connection if it does not exist. Records can be sent immediately; they are transmitted when
    /// the connection is established. On failure, returns null and sets errno: ENETUNREACH (the
    /// network between hosts is disabled, or there is no route to the host), ENOENT (@p slot is too
    /// large), EMFILE, ENOMEM.
    [[nodiscard]] Connection* connect(const Route& route, unsigned slot) noexcept;
    /// Listens on the TCP port of the slot directory_slot, which processes of this host share.
    /// Connections that are accepted there have this slot at both ends. Returns 0, also if this
    /// process listens already or the network is disabled, or an errno such as EADDRINUSE (another
    /// user or another program uses the port).
    [[nodiscard]] int serve_directory() { return network_ ? network_->serve_directory() : 0; }

    /// Passes at most @p budget received records (requests and responses) to the callbacks of @p
    /// handler. Also handles the events of the network between hosts, such as new connections and
    /// handshakes. Returns the number of records that were consumed.
    unsigned progress(Handler& handler, unsigned budget);
    /// Handles the events of Unix sockets: new connections, messages, and the end of other
    /// processes. Also reports to other hosts how much this process has consumed
    /// (TcpLink::acknowledge()). Returns whether there was an event of this host.
    bool service(Handler& handler);

    /// Returns when the next timer of the network between hosts expires, in nanoseconds of
    /// now_ns(). 0: no timer is set.
    [[nodiscard]] std::uint64_t next_deadline() const noexcept;
    /// Must be called when the clock runs again after a test has stopped it. Sets the timers.
    void clock_runs() noexcept;
    /// Returns a descriptor that is readable when service() and progress() must be called, between
    /// arm() and disarm().
    [[nodiscard]] int descriptor() const noexcept { return epoll_.get(); }

    /// Prepares wait(): sets a flag, so that other processes wake this process when they send
    /// records (requests and responses). If a record can be delivered already, returns false
    /// without setting the flag; the caller must then call progress(). A request that
    /// Handler::on_request() has rejected does not count until another record has been delivered.
    /// Therefore the caller must call progress() itself when on_request() can accept that request.
    [[nodiscard]] bool arm() noexcept;
    /// Reverts arm(). Called when a thread of this process polls, because other processes then need
    /// not wake this process.
    void disarm() noexcept;
    /// Sleeps until another process wakes this process, a socket has an event, wake() is called, or
    /// the timeout expires. The caller must not hold the lock that protects the Node.
    /// @param timeout_ns  timeout in nanoseconds; negative: no timeout
    void wait(std::int64_t timeout_ns) noexcept;
    /// Sleeps until wake() is called. The caller must not hold the lock that protects the Node.
    void wait_for_wake() noexcept;
    /// Wakes the thread that sleeps in wait() or wait_for_wake(). Any thread may call this
    /// function, even without the lock that protects the Node.
    void wake() noexcept;

    /// Called in a child process after fork(2). Closes the file descriptors that the child process
    /// has inherited from the Node. The parent process is not affected.
    void abandon() noexcept;
    /// Called when the process exits, without the lock that protects the Node: removes its files.
    void remove_files() const noexcept;

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
    LinkContext context_;
    /// The connections to other hosts. Null if the network between hosts is disabled.
    std::unique_ptr<TcpNetwork> network_;
    Slot slot_;
    UniqueFd epoll_;
    UniqueFd doorbell_;
    UniqueFd wake_;
    Acceptor acceptor_;
    std::vector<std::unique_ptr<Link>> links_;
    /// Index in links_ of the connection with which the next call of progress() starts. Each call
    /// starts with another connection, so that no connection is always served last.
    std::size_t first_ = 0;
};

} // namespace softverbs::fabric
