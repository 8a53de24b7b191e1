// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// A record is a message between two processes: a request or a response. Requests and responses
/// travel in separate streams, which are called lanes. A process can always consume responses, even
/// if it cannot consume requests now. Therefore two processes do not deadlock when their lanes of
/// requests are full.
enum class Lane : std::uint8_t { requests, responses };
inline constexpr std::size_t lanes = 2;

enum class Sent : std::uint8_t {
    /// The connection has accepted the record (the request or the response) for transmission.
    sent,
    /// The lane (the stream of requests or of responses) is full, and nothing was sent. When the
    /// lane has room again, the callback Handler::on_room() is called.
    full,
    /// The connection is closed: the other process has ended or has sent invalid data, or the
    /// network has failed.
    closed,
};

/// Describes a range of memory of the process that sends a record (a request or a response). The
/// record refers to the data in this range, but does not contain it. The receiving process copies
/// the data with Connection::pull().
struct Segment {
    /// The position of the first byte of the data. If the member "share" is 0, the position is a
    /// virtual address in the sending process. Otherwise, it is an offset in bytes in the shared
    /// memory that has the id "share".
    std::uint64_t address;
    std::uint64_t length;
    /// The id of the shared memory that contains the data, as passed to Connection::share(). 0: the
    /// data is in memory of the sending process that is not shared.
    std::uint32_t share;
    /// The value of Connection::offer() when the Segment was sent: the number of calls of
    /// Connection::withdraw() for the lane of this Segment until then. A later call of withdraw()
    /// invalidates the Segment. After the receiving process has copied the data, it must pass this
    /// number to Connection::stands(), which returns whether the copied data is valid.
    std::uint32_t offer;
};
static_assert(sizeof(Segment) == 24);

/// Permission for another process of this host to write the data of its RDMA writes directly to
/// memory of this process, instead of sending the data in messages.
struct WriteGrant {
    /// Identifies the writer: the number of its queue pair and the number of the target queue pair.
    /// Connection::write_granted() compares this value with its argument "writer".
    std::uint64_t writer;
    /// The rkey of the memory. Connection::write_granted() compares this value with its argument
    /// "key".
    std::uint64_t key;
    /// The address (iova) that RDMA requests use for the first byte of the memory.
    std::uint64_t first;
    /// Length of the memory in bytes.
    std::uint64_t length;
    /// Virtual address of the first byte of the memory, in the process that owns the memory.
    std::uint64_t address;
};

/// How another process reads memory of this process that was not shared with Connection::share().
enum class PullMethod : std::uint8_t {
    /// The method is not known, because the other process has not accepted the connection yet.
    /// Until then, this process must send all data in records (messages on the connection).
    unknown,
    /// The other process reads the memory through /proc/<pid>/mem or with process_vm_readv(2); see
    /// ProcessMemory.
    process_vm,
    /// The other process cannot read the memory: it is on another host, SOFTVERBS_PULL is "none",
    /// NodeOptions::reaches_memory is false, or the kernel does not permit the access. This process
    /// must send all data in records (messages on the connection).
    none,
};

/// The bytes of a record, in several parts.
using RecordParts = std::span<const std::span<const std::byte>>;

[[nodiscard]] constexpr std::size_t length_of(RecordParts parts) noexcept {
    std::size_t length = 0;
    for (const auto part : parts) {
        length += part.size();
    }
    return length;
}

class Connection {
  public:
    Connection() = default;
    /// Constructs a connection between the host addresses in @p route. If route.remote is zero,
    /// both processes are on this host.
    explicit Connection(const Route& route) noexcept
        : route_(route), between_hosts_(static_cast<bool>(route.remote)) {}
    virtual ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Returns whether the other process is on another host. If it is, pull() and share() fail, and
    /// all data must be sent in records (messages on the connection).
    [[nodiscard]] bool between_hosts() const noexcept { return between_hosts_; }
    /// Returns the IP addresses of both hosts. They are zeros for a connection within this host.
    [[nodiscard]] const Route& route() const noexcept { return route_; }
    /// Returns whether the other process will consume the data that this process sends. Within this
    /// host, returns false while the other process is stopped by a signal. Returns false while a
    /// connection to another host is being established, and while the other host acknowledges no
    /// data, for example because a cable is unplugged. Returns true if a process of another host is
    /// only stopped, because its kernel still acknowledges data.
    [[nodiscard]] virtual bool delivers() noexcept { return true; }

    /// Returns the slot of the other process: its index among the processes of its host, from 0.
    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    /// A pointer for the code that uses the connection. The fabric does not read it.
    void* user = nullptr;

    /// Returns the maximum length in bytes of a record (a request or a response).
    [[nodiscard]] virtual std::size_t max_record() const noexcept = 0;
    /// Sends one record (a request or a response). It consists of the bytes of all @p parts, one
    /// part after another. Wakes the other process if it sleeps.
    [[nodiscard]] virtual Sent send(Lane lane, RecordParts parts) noexcept = 0;
    /// Reserves space for a record of @p length bytes in a lane (the stream of requests or of
    /// responses), which avoids a copy of the record. The caller must write the record to the
    /// returned address and then call commit(). Between reserve() and commit(), no other function
    /// may be called for this lane. Returns null if the lane is full, the connection is closed, or
    /// the connection does not support this function; the caller must then call send() instead.
    [[nodiscard]] virtual std::byte* reserve(Lane, std::size_t) noexcept { return nullptr; }
    virtual void commit(Lane, std::size_t) noexcept {}
    /// Returns whether a record of @p length bytes fits into @p lane (the stream of requests or of
    /// responses) now. Also returns true if the connection is closed, so that the caller does not
    /// wait forever for room; send() then returns Sent::closed.
    [[nodiscard]] virtual bool has_room(Lane lane, std::size_t length) noexcept = 0;
    /// Returns the number of requests that this process has sent on this connection.
    [[nodiscard]] virtual std::uint64_t sent() const noexcept = 0;
    /// Returns how many requests of this process the other process has consumed. The responses to
    /// these requests may arrive later.
    [[nodiscard]] virtual std::uint64_t taken() const noexcept = 0;

    /// Permits the other process to write directly to the memory that @p grant describes, until
    /// this process calls withdraw_grants(). A later call of grant() may replace this permission.
    /// Returns false if the permission was not granted, for example because the other process is on
    /// another host, or may still be writing with a replaced permission.
    virtual bool grant(const WriteGrant&) noexcept { return false; }
    /// Withdraws all permissions that grant() has given to the other process. The other process may
    /// still be executing a direct write that it began earlier; see write_in_progress().
    virtual void withdraw_grants() noexcept {}
    /// Returns whether the other process may still be executing a direct write that it began before
    /// withdraw_grants(). Returns false if the other process has ended.
    [[nodiscard]] virtual bool write_in_progress() noexcept { return false; }
    /// Writes the bytes of all @p parts directly to memory of the other process, if that process
    /// has permitted the write with grant(). Writes nothing if the other process has not consumed
    /// all requests of this process yet, because the write must not overtake these requests.
    /// Returns false if not all bytes were written; the caller must then send the data in a record
    /// (a message on the connection) instead.
    /// @param writer  the queue pairs, as in WriteGrant::writer
    /// @param key  the rkey, as in WriteGrant::key
    /// @param address  the address (iova) of the first byte to write
    [[nodiscard]] virtual bool write_granted(std::uint64_t /*writer*/, std::uint64_t /*key*/,
                                             std::uint64_t /*address*/, RecordParts) noexcept {
        return false;
    }

    /// Returns how the other process reads memory of this process that was not shared with share().
    [[nodiscard]] virtual PullMethod pull_method() const noexcept { return PullMethod::none; }
    /// Fills @p into with bytes from memory of the other process. @p address and @p share have the
    /// same meaning as Segment::address and Segment::share. Returns 0 or an errno: EFAULT (the
    /// address is not mapped in the other process), ESRCH (the other process has ended), EPERM
    /// (this process cannot read memory of the other process, see PullMethod::none), EINVAL (@p
    /// share is unknown, or the range exceeds the shared memory), ENOMEM, or the error of
    /// DMA_BUF_IOCTL_SYNC.
    [[nodiscard]] virtual int pull(std::uint64_t /*address*/, std::uint32_t /*share*/,
                                   std::span<std::byte> /*into*/) noexcept {
        return EPERM;
    }

    /// Returns the number of calls of withdraw() for @p lane (the stream of requests or of
    /// responses). This process must store this number in Segment::offer of each Segment (a
    /// description of its memory) that it sends.
    [[nodiscard]] virtual std::uint32_t offer(Lane) const noexcept { return 0; }
    /// Invalidates each Segment (description of memory of this process) that was sent in this lane.
    /// After this call, this process may change or free the memory. If the other process copies
    /// from the memory later, stands() returns false in that process.
    virtual void withdraw(Lane) noexcept {}
    /// Returns whether bytes that pull() has copied from memory of the sender are valid. They are
    /// not valid if the sender has called withdraw() after it sent the Segment that describes the
    /// memory. Must be called after pull().
    /// @param offer  the value of Segment::offer in that Segment
    [[nodiscard]] virtual bool stands(Lane, std::uint32_t /*offer*/) const noexcept {
        return false;
    }

    /// Shares the first @p length bytes of @p fd with the other process, which maps them read-only.
    /// The caller still owns @p fd. @p id, which is not 0, identifies the memory in Segment::share.
    /// Returns 0 if the file descriptor was sent or queued. Handler::on_shared() later reports
    /// whether the other process has mapped the memory: 0, or an errno such as EACCES for a memfd
    /// without F_SEAL_SHRINK, because such a memfd could shrink and raise SIGBUS. Returns an errno
    /// on failure: EINVAL (@p id or @p length is 0), EBADF, EEXIST (the id is in use), EAGAIN (too
    /// many messages are queued), ETOOMANYREFS, EMFILE, ENOMEM, ESRCH (the other process has
    /// ended), EOPNOTSUPP (the other process is on another host).
    [[nodiscard]] virtual int share(std::uint32_t /*id*/, int /*fd*/,
                                    std::size_t /*length*/) noexcept {
        return EOPNOTSUPP;
    }
    /// Stops sharing the memory that has the id @p id. The other process then unmaps the memory.
    virtual void unshare(std::uint32_t /*id*/) noexcept {}

    /// Closes the connection, because the other process has sent invalid data or does not respond.
    /// Handler::on_closed() is called later.
    virtual void close() noexcept = 0;
    /// Returns why a connection to another host failed: the errno of connect(2), such as
    /// ECONNREFUSED (no process listens there), EACCES if the handshake failed, or 0 for any other
    /// reason.
    [[nodiscard]] virtual int error() const noexcept { return 0; }

  private:
    Route route_;
    bool between_hosts_ = false;
};

/// State that all connections of a Node share.
struct NodeState {
    /// True between Node::arm() and Node::disarm(). A thread may then sleep in Node::wait(), so
    /// other processes must wake this process through its doorbell (an eventfd).
    bool armed = false;
    /// Number of received records and events that the callbacks in Handler have processed. If
    /// Handler::on_request() has rejected a request, it would reject the request again until this
    /// number has changed. Until then, the thread can sleep although the request is not processed.
    std::uint64_t deliveries = 0;
};

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

} // namespace softverbs::fabric
