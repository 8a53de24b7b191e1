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

/// The fabric carries records between the processes of one user, on this host and on others. Each
/// process is a node and has a slot: its number among the nodes of its host. Two nodes that
/// communicate have a connection. Within a host a connection is a pair of rings in shared memory, a
/// doorbell for a consumer that sleeps, and a socket that shows when the other process has ended.
/// Between hosts it is a TCP connection.
///
/// No class of the fabric locks: all calls but wait() and wake() are made with the caller's one
/// lock held.

class Connection;

/// Requests and responses travel apart: responses can always be taken, so two nodes whose requests
/// wait for each other do not stand still.
enum class Lane : std::uint8_t { requests, responses };
inline constexpr std::size_t lanes = 2;

enum class Sent : std::uint8_t {
    /// The record is in the ring.
    sent,
    /// There is no room now; Handler::on_room() tells when to try again.
    full,
    /// The other process is gone, or was cut off because it sent garbage.
    gone,
};

/// Bytes in the other process that it has said it wants read.
struct Segment {
    /// In its private memory; with a share, the offset in what it shared.
    std::uint64_t address;
    std::uint64_t length;
    /// What share() returned there, or 0.
    std::uint32_t share;
    /// Connection::offer() there, of the lane and the time it was sent.
    std::uint32_t offer;
};
static_assert(sizeof(Segment) == 24);

/// Memory of this process that another process may write without a record, while it is granted.
struct WriteGrant {
    /// What the owner of the node knows the writer by, as in the writer's own calls.
    std::uint64_t writer;
    std::uint64_t key;
    /// The first address that the writer knows the memory by, its length, and where it is in this
    /// process.
    std::uint64_t first;
    std::uint64_t length;
    std::uint64_t address;
};

/// What the node's owner does about what arrives. Called from progress() and service() only.
/// Records are bytes in shared memory that the other process could still write: copy what must not
/// change.
class Handler {
  public:
    virtual ~Handler() = default;
    /// A record in the lane of requests, 8-byte aligned. False: it cannot be taken now, and is
    /// handed out again by a later progress().
    virtual bool on_request(Connection& from, std::span<const std::byte> record) = 0;
    virtual void on_response(Connection& from, std::span<const std::byte> record) = 0;
    /// There is room again in a lane that was full.
    virtual void on_room(Connection& to) = 0;
    /// The process is gone, or sent garbage. The connection stays valid until this returns.
    virtual void on_gone(Connection& connection) = 0;
    /// The other side has mapped (0) or could not map (an errno) what was shared as @p share.
    virtual void on_shared(Connection& to, std::uint32_t share, int error) = 0;
};

/// How the bytes of private memory get to another process, which fetches them.
enum class PullMethod : std::uint8_t {
    /// Not found out yet: the other process has not accepted. Send the bytes in records.
    unknown,
    /// It reads them out of this process's memory with process_vm_readv(2).
    process_vm,
    /// The system does not permit that (ptrace_scope, another PID namespace): send them in records.
    none,
};

class Connection {
  public:
    Connection() = default;
    /// A connection between hosts.
    explicit Connection(const Route& route) noexcept
        : route_(route), between_hosts_(static_cast<bool>(route.remote)) {}
    virtual ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Whether the other process runs on another host. Memory cannot be fetched from it: all bytes
    /// travel in records.
    [[nodiscard]] bool between_hosts() const noexcept { return between_hosts_; }
    /// The addresses of both hosts; zeros for a connection within this host.
    [[nodiscard]] const Route& route() const noexcept { return route_; }
    /// Whether records still reach the other host. False while a connection between hosts is being
    /// made, and while the other host acknowledges nothing, as after a cable was pulled. A process
    /// that is stopped or busy does not make it false.
    [[nodiscard]] virtual bool delivers() noexcept { return true; }

    /// The other node's slot.
    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    /// For whatever the node's owner keeps for each connection.
    void* user = nullptr;

    /// The longest record.
    [[nodiscard]] virtual std::size_t max_record() const noexcept = 0;
    /// Puts one record, made of the parts one after the other, into a lane, and rings if the other
    /// side sleeps.
    [[nodiscard]] virtual Sent send(Lane lane,
                                    std::span<const std::span<const std::byte>> parts) noexcept = 0;
    /// Where the caller writes a record of exactly @p length bytes, for commit() to send it:
    /// instead of send(), and without a copy in between. No other call in this lane may come
    /// between the two. Null: send() has to be used, which also says why.
    [[nodiscard]] virtual std::byte* reserve(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
        return nullptr;
    }
    virtual void commit(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
    }
    /// Whether send() of a record of @p length bytes would not find the lane full; true when the
    /// other process is gone.
    [[nodiscard]] virtual bool has_room(Lane lane, std::size_t length) noexcept = 0;
    /// How many records were put into the lane of requests, and how many of them the other side has
    /// done with. One that it has not done with it may still be going to answer.
    [[nodiscard]] virtual std::uint64_t sent() const noexcept = 0;
    [[nodiscard]] virtual std::uint64_t taken() const noexcept = 0;

    /// Lets the other process write to memory of this one, until withdraw_grants(). A later grant
    /// may replace an earlier one. False: nothing is granted.
    virtual bool grant(const WriteGrant& grant) noexcept {
        static_cast<void>(grant);
        return false;
    }
    /// Takes back all grants to the other process. When this returns no write by them is under way,
    /// and none comes any more.
    virtual void withdraw_grants() noexcept {}
    /// Writes into memory that the other process has granted, if it has consumed all records that
    /// were sent. @param address  as in WriteGrant::first. False: it is not granted or cannot be
    /// written, and a record has to be sent.
    [[nodiscard]] virtual bool write_granted(std::uint64_t writer, std::uint64_t key,
                                             std::uint64_t address,
                                             std::span<const std::byte> bytes) noexcept {
        static_cast<void>(writer);
        static_cast<void>(key);
        static_cast<void>(address);
        static_cast<void>(bytes);
        return false;
    }

    /// Whether the other process can read this one's private memory.
    [[nodiscard]] virtual PullMethod pull_method() const noexcept = 0;
    /// Reads bytes out of the other process: 0, or an errno: EFAULT (no such memory there), ESRCH
    /// (it is gone), EPERM (not permitted), EINVAL (no such share or out of its bounds).
    [[nodiscard]] virtual int pull(std::uint64_t address, std::uint32_t share,
                                   std::span<std::byte> into) noexcept = 0;

    /// What segments carry that are sent now, so that withdraw() reaches them and no later ones.
    [[nodiscard]] virtual std::uint32_t offer(Lane lane) const noexcept = 0;
    /// Takes back all segments that were sent in this lane so far. Once this returns their memory
    /// may change: who reads it after that finds out that they do not stand any more.
    virtual void withdraw(Lane lane) noexcept = 0;
    /// Whether segments of the other process with this offer stood until now. What was pulled
    /// before is what they promised if so, and anything if not.
    [[nodiscard]] virtual bool stands(Lane lane, std::uint32_t offer) const noexcept = 0;

    /// Offers the other process a mapping of @p length bytes from the start of @p fd, read-only
    /// there; the caller keeps fd. @p id is this process's name for the memory, not 0. The outcome
    /// comes by Handler::on_shared(): 0, or an errno, such as EACCES (a memfd without
    /// F_SEAL_SHRINK: it could shrink and raise SIGBUS there). 0, or an errno: EINVAL, EBADF,
    /// EEXIST (offered already), EAGAIN (too many offers wait for the socket), EMFILE, ENOMEM,
    /// ESRCH (it is gone).
    [[nodiscard]] virtual int share(std::uint32_t id, int fd, std::size_t length) noexcept = 0;
    /// The other side may unmap it.
    virtual void unshare(std::uint32_t id) noexcept = 0;

  private:
    Route route_;
    bool between_hosts_ = false;
};

struct NodeOptions {
    /// Where nodes meet. Empty: SOFTVERBS_DIR, or softverbs in XDG_RUNTIME_DIR, or
    /// /tmp/softverbs-<uid>. Made with mode 0700 where it is missing.
    std::string directory;
    /// How many nodes there can be at once.
    unsigned slots = 1024;
    /// Bytes of each ring, in the order of Lane; powers of two.
    std::size_t ring_bytes[lanes] = {std::size_t{256} * 1024, std::size_t{128} * 1024};
    /// The network between hosts; without addresses there is none.
    NetworkSettings network;
};

class Node {
  public:
    /// Takes the first free slot; what a killed process left in it is cleared away. Throws
    /// std::system_error with a text that says what to do: EACCES (the directory is not this
    /// user's, or others can enter it), ENOSPC (every slot is taken), EMFILE, and what the system
    /// calls said.
    [[nodiscard]] static std::unique_ptr<Node> open(const NodeOptions& options = {});
    Node() = default;
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    [[nodiscard]] virtual const std::string& directory() const noexcept = 0;
    /// The connection to another node, made if there is none yet; records may be sent at once. Null
    /// and errno: ENOENT (nobody has the slot), EACCES (another user has it), EMFILE, ENOMEM,
    /// EAGAIN (it does not accept just now).
    [[nodiscard]] virtual Connection* connect(unsigned slot) noexcept = 0;
    /// The connection to a node of another host; records may be sent at once and travel when the
    /// connection is made. Null and errno: ENETUNREACH (there is no network between hosts, or no
    /// way to that host), ENOENT, EMFILE, ENOMEM.
    [[nodiscard]] virtual Connection* connect(const Route& route, unsigned slot) noexcept {
        static_cast<void>(route);
        static_cast<void>(slot);
        errno = ENETUNREACH;
        return nullptr;
    }

    /// Hands out what has arrived in the rings, at most about @p budget records; how many it was.
    virtual unsigned progress(Handler& handler, unsigned budget) = 0;
    /// Accepts, greets, takes descriptors in and notices who is gone: what comes by sockets.
    virtual void service(Handler& handler) = 0;

    /// From now on senders ring. False: something is there already, do not sleep. A request that
    /// was refused does not count until something else has been handed out since: what it waited
    /// for inside this process is for the owner to follow with progress().
    [[nodiscard]] virtual bool arm() noexcept = 0;
    /// Senders need not ring: somebody polls.
    virtual void disarm() noexcept = 0;
    /// Sleeps until somebody rings, a socket needs service(), wake() is called or the time is over.
    /// Without the lock.
    /// @param timeout_ns  negative: no limit
    virtual void wait(std::int64_t timeout_ns) noexcept = 0;
    /// Ends a wait(). From any thread, without the lock.
    virtual void wake() noexcept = 0;

    /// For the child after fork(2): forgets the parent's node without disturbing it.
    virtual void abandon() noexcept = 0;
};

} // namespace softverbs::fabric
