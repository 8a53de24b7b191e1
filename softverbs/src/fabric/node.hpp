// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "fabric/host_address.hpp"
#include "fabric/network_settings.hpp"

namespace softverbs::fabric {

/// The fabric carries records between the processes of one user, on this host and on other hosts. A
/// record is a sequence of bytes that the fabric does not interpret. Each process is a node. A node
/// has a slot, which is its number among the nodes of its host. Two nodes that communicate have a
/// connection. Within a host, a connection is a pair of shared-memory rings in each direction, an
/// eventfd (the doorbell) that wakes a sleeping consumer, and a Unix socket that reports the end of
/// the other process. Between hosts, a connection is a TCP connection.
///
/// The classes of the fabric contain no locks. The caller must hold one lock for all calls except
/// Node::wait() and Node::wake().

class Connection;

/// A connection has two lanes in each direction: one queue for requests and one for responses.
/// Responses can always be consumed, so two nodes whose request lanes are both full cannot
/// deadlock.
enum class Lane : std::uint8_t { requests, responses };
inline constexpr std::size_t lanes = 2;

enum class Sent : std::uint8_t {
    /// The record was written to the lane, which is the queue for requests or the queue for
    /// responses.
    sent,
    /// The lane is full. Handler::on_room() is called when it has room again.
    full,
    /// The connection is closed: the other process has ended, or it sent invalid data.
    closed,
};

/// A range of memory of the sending process. The receiving process reads it with Connection::pull()
/// instead of receiving its bytes in a record.
struct Segment {
    /// If share is 0: an address in the private memory of the sender. Otherwise: an offset in the
    /// shared memory.
    std::uint64_t address;
    std::uint64_t length;
    /// The id that the sender passed to Connection::share(); 0: private memory.
    std::uint32_t share;
    /// The result of Connection::offer() for this lane in the sending process, at the time when the
    /// record was sent.
    std::uint32_t offer;
};
static_assert(sizeof(Segment) == 24);

/// Permission for another process to write directly into memory of this process, without a record.
struct WriteGrant {
    /// Identifies the writer: the numbers of its queue pair and of the target queue pair. The
    /// fabric only compares this value with the argument of write_granted().
    std::uint64_t writer;
    /// The rkey of the memory. The fabric only compares it, like writer.
    std::uint64_t key;
    /// Address by which the writer names the first byte of the memory; for a memory region, the
    /// iova.
    std::uint64_t first;
    /// Length of the memory in bytes.
    std::uint64_t length;
    /// Virtual address of the first byte in this process.
    std::uint64_t address;
};

/// Callbacks of a node. Only progress() and service() call them. A record lies in shared memory
/// that the other process can still overwrite, so the callback must copy everything that it checks
/// and uses later.
class Handler {
  public:
    virtual ~Handler() = default;
    /// Delivers a request, aligned to 8 bytes. Return false when the request cannot be processed
    /// now. A later progress() then delivers the same request again.
    virtual bool on_request(Connection& from, std::span<const std::byte> record) = 0;
    virtual void on_response(Connection& from, std::span<const std::byte> record) = 0;
    /// Called when a lane in which send() returned Sent::full has room again.
    virtual void on_room(Connection& to) = 0;
    /// The connection is closed: the other process has ended, or it sent invalid data. The
    /// Connection object is valid until this callback returns.
    virtual void on_closed(Connection& connection) = 0;
    /// The other process has mapped the memory that was shared with the id @p share (@p error is
    /// 0), or could not map it (@p error is its errno).
    virtual void on_shared(Connection& to, std::uint32_t share, int error) = 0;
};

/// How the receiving process gets the bytes of the sender's private memory.
enum class PullMethod : std::uint8_t {
    /// The other process has not accepted the connection yet. The sender must put the bytes into
    /// records.
    unknown,
    /// The other process reads them from this process with process_vm_readv(2).
    process_vm,
    /// The kernel does not permit process_vm_readv(2), for example because of ptrace_scope or
    /// because the other process is in another PID namespace. The sender must put the bytes into
    /// records.
    none,
};

class Connection {
  public:
    Connection() = default;
    /// Constructs a connection between hosts, if the remote address of @p route is set.
    explicit Connection(const Route& route) noexcept
        : route_(route), between_hosts_(static_cast<bool>(route.remote)) {}
    virtual ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Whether the other process runs on another host. pull() and share() do not work then, and all
    /// data travels in records.
    [[nodiscard]] bool between_hosts() const noexcept { return between_hosts_; }
    /// The addresses of both hosts; zeros for a connection within this host.
    [[nodiscard]] const Route& route() const noexcept { return route_; }
    /// Whether the other host acknowledges the data that was sent. It is false while a connection
    /// between hosts is being established, and while the other host does not acknowledge, for
    /// example because a cable is unplugged. It is true when the other process is stopped or busy,
    /// because its kernel still acknowledges.
    [[nodiscard]] virtual bool delivers() noexcept { return true; }

    /// Returns the slot of the other process: its number among the processes of its host.
    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    /// A pointer for use by the owner of the node. The fabric does not read it.
    void* user = nullptr;

    /// The maximum length of a record, in bytes.
    [[nodiscard]] virtual std::size_t max_record() const noexcept = 0;
    /// Sends one record, which is the concatenation of @p parts. Rings the doorbell if the other
    /// process sleeps.
    [[nodiscard]] virtual Sent send(Lane lane,
                                    std::span<const std::span<const std::byte>> parts) noexcept = 0;
    /// Reserves the space for a record of exactly @p length bytes in the lane, so that the caller
    /// can write the record without a copy. commit() then sends it. No other call for this lane may
    /// come between reserve() and commit(). Returns null when the lane has no room, when the
    /// connection is closed, or when the connection does not support this; send() then reports the
    /// reason.
    [[nodiscard]] virtual std::byte* reserve(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
        return nullptr;
    }
    virtual void commit(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
    }
    /// Returns whether a record of @p length bytes fits into the lane, so that send() would not
    /// return Sent::full. Returns true for a closed connection, so that the caller does not wait
    /// forever.
    [[nodiscard]] virtual bool has_room(Lane lane, std::size_t length) noexcept = 0;
    /// Number of requests that this process has sent.
    [[nodiscard]] virtual std::uint64_t sent() const noexcept = 0;
    /// Number of these requests that the other process has consumed. Its responses can come later.
    [[nodiscard]] virtual std::uint64_t taken() const noexcept = 0;

    /// Permits the other process to write into memory of this process until withdraw_grants(). A
    /// later grant can replace an earlier one. Returns false when no permission was granted.
    virtual bool grant(const WriteGrant& grant) noexcept {
        static_cast<void>(grant);
        return false;
    }
    /// Withdraws all permissions that grant() gave to the other process. If the other process is
    /// writing, this call waits for the end of that write, up to one second.
    virtual void withdraw_grants() noexcept {}
    /// Writes @p bytes into memory that the other process has granted. The write must not overtake
    /// requests, so it is possible only when the other process has consumed all requests that were
    /// sent. Returns false when the write was not possible; the caller then sends a record instead.
    /// @param address  an address as in WriteGrant::first
    [[nodiscard]] virtual bool write_granted(std::uint64_t writer, std::uint64_t key,
                                             std::uint64_t address,
                                             std::span<const std::byte> bytes) noexcept {
        static_cast<void>(writer);
        static_cast<void>(key);
        static_cast<void>(address);
        static_cast<void>(bytes);
        return false;
    }

    /// How the other process gets the bytes of this process's private memory.
    [[nodiscard]] virtual PullMethod pull_method() const noexcept = 0;
    /// Copies bytes from the memory of the other process. Returns 0 or an errno: EFAULT (the
    /// address is not mapped there), ESRCH (the process has ended), EPERM (not permitted), EINVAL
    /// (unknown share, or out of its bounds).
    [[nodiscard]] virtual int pull(std::uint64_t address, std::uint32_t share,
                                   std::span<std::byte> into) noexcept = 0;

    /// The number to put into Segment::offer of segments that are sent now. withdraw() increments
    /// it, which invalidates all segments with an older number.
    [[nodiscard]] virtual std::uint32_t offer(Lane lane) const noexcept = 0;
    /// Invalidates all segments that were sent in this lane so far. After this call their memory
    /// may be changed or freed: a reader that reads it later detects with stands() that the segment
    /// is no longer valid.
    virtual void withdraw(Lane lane) noexcept = 0;
    /// Returns whether segments of the other process that contain this number in Segment::offer are
    /// still valid. Call it after pull(): the bytes that pull() copied are correct only if the
    /// result is true.
    [[nodiscard]] virtual bool stands(Lane lane, std::uint32_t offer) const noexcept = 0;

    /// Shares the first @p length bytes of @p fd with the other process, which maps them read-only.
    /// The caller keeps ownership of @p fd. @p id is a number other than 0 that identifies the
    /// memory in Segment::share. Returns 0 when the descriptor was sent or queued;
    /// Handler::on_shared() later reports 0 or an errno of the other process, such as EACCES (a
    /// memfd without F_SEAL_SHRINK, which could shrink and raise SIGBUS there). Otherwise returns
    /// an errno: EINVAL (@p id or @p length is 0), EBADF, EEXIST (the id is in use), EAGAIN (too
    /// many messages are queued), EMFILE, ENOMEM, ESRCH (the process has ended), EOPNOTSUPP (the
    /// process is on another host).
    [[nodiscard]] virtual int share(std::uint32_t id, int fd, std::size_t length) noexcept = 0;
    /// Ends the sharing; the other process unmaps the memory.
    virtual void unshare(std::uint32_t id) noexcept = 0;

  private:
    Route route_;
    bool between_hosts_ = false;
};

struct NodeOptions {
    /// The rendezvous directory, in which nodes find each other. If empty: SOFTVERBS_DIR if set,
    /// otherwise $XDG_RUNTIME_DIR/softverbs, otherwise /tmp/softverbs-<uid>. It is created with
    /// mode 0700 if it does not exist.
    std::string directory;
    /// The maximum number of nodes at the same time.
    unsigned slots = 1024;
    /// The size of each ring in bytes, indexed by Lane. Each is a power of two.
    std::size_t ring_bytes[lanes] = {std::size_t{256} * 1024, std::size_t{128} * 1024};
    /// The network between hosts. It is disabled if the list of addresses is empty.
    NetworkSettings network;
};

class Node {
  public:
    /// Creates the node of this process in a free slot, and removes the files that a killed process
    /// left in that slot. Throws std::system_error with a text that suggests a remedy: EACCES (the
    /// directory belongs to another user or other users can enter it), ENOSPC (all slots are in
    /// use), EMFILE, and the errors of the system calls.
    [[nodiscard]] static std::unique_ptr<Node> open(const NodeOptions& options = {});
    Node() = default;
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    [[nodiscard]] virtual const std::string& directory() const noexcept = 0;
    /// Returns the connection to the process on this host that has the number @p slot, and creates
    /// it if needed. Records may be sent at once. Returns null and sets errno on failure: ENOENT
    /// (no process has the slot), EACCES (a process of another user has it), EMFILE, ENOMEM, EAGAIN
    /// (the process does not accept connections now).
    [[nodiscard]] virtual Connection* connect(unsigned slot) noexcept = 0;
    /// Returns the connection to the node in @p slot of another host, and creates it if needed.
    /// Records may be sent at once; they are transmitted when the connection is established.
    /// Returns null and sets errno on failure: ENETUNREACH (the network between hosts is disabled,
    /// or there is no route to the host), ENOENT (the slot number is too large), EMFILE, ENOMEM.
    [[nodiscard]] virtual Connection* connect(const Route& route, unsigned slot) noexcept {
        static_cast<void>(route);
        static_cast<void>(slot);
        errno = ENETUNREACH;
        return nullptr;
    }

    /// Delivers received records to @p handler, about @p budget at most. Returns the number of
    /// delivered records.
    virtual unsigned progress(Handler& handler, unsigned budget) = 0;
    /// Handles the events of the sockets: new connections, handshake messages, received
    /// descriptors, and the end of other processes.
    virtual void service(Handler& handler) = 0;

    /// Requests a doorbell from all producers before the caller sleeps. Returns false, and does not
    /// arm, when records are already available: the caller must call progress() instead of wait().
    /// A request that the handler rejected is not counted as available until another record was
    /// delivered; the owner of the node calls progress() when the local reason for the rejection is
    /// removed.
    [[nodiscard]] virtual bool arm() noexcept = 0;
    /// Ends arm(): producers need not ring the doorbell, because a thread polls.
    virtual void disarm() noexcept = 0;
    /// Sleeps until the doorbell is rung, a socket has an event, wake() is called or the timeout
    /// expires. Call it without the lock.
    /// @param timeout_ns  nanoseconds; negative: no timeout
    virtual void wait(std::int64_t timeout_ns) noexcept = 0;
    /// Wakes the thread in wait(). Any thread may call it, without the lock.
    virtual void wake() noexcept = 0;

    /// For the child process after fork(2): closes its copies of the parent's descriptors. The node
    /// of the parent keeps working.
    virtual void abandon() noexcept = 0;
};

} // namespace softverbs::fabric
