// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/host_address.hpp"

namespace softverbs::fabric {

/// A connection has two lanes in each direction: one for requests and one for responses. A consumer
/// can always consume responses. So two nodes cannot deadlock when their request lanes are full.
enum class Lane : std::uint8_t { requests, responses };
inline constexpr std::size_t lanes = 2;

enum class Sent : std::uint8_t {
    /// The record was written to the lane.
    sent,
    /// The lane is full. Handler::on_room() will be called when it has room again.
    full,
    /// The connection is closed: the other process has ended, or it sent invalid data.
    closed,
};

/// Describes data that a record does not contain: a range of memory of the process that sends the
/// record. The receiving process copies the data from this memory with Connection::pull().
struct Segment {
    /// If share is 0, a virtual address in the sending process. Otherwise, an offset in the shared
    /// memory.
    std::uint64_t address;
    std::uint64_t length;
    /// The id of shared memory, from Connection::share(). 0: private memory of the sending process.
    std::uint32_t share;
    /// The value of Connection::offer() when the record was sent. The receiving process passes it
    /// to Connection::stands(), which returns whether the memory is still valid.
    std::uint32_t offer;
};
static_assert(sizeof(Segment) == 24);

/// Permission for another process to write directly to memory of this process. Such a write needs
/// no record in the ring.
struct WriteGrant {
    /// Identifies the writer: its queue pair number and the number of the target queue pair. The
    /// fabric only compares this value with the argument of write_granted().
    std::uint64_t writer;
    /// The rkey of the memory. The fabric only compares this value with the argument of
    /// write_granted().
    std::uint64_t key;
    /// The address of the first byte that RDMA requests use: the iova of the memory region.
    std::uint64_t first;
    /// Length of the memory in bytes.
    std::uint64_t length;
    /// Virtual address of the first byte in the process that owns the memory.
    std::uint64_t address;
};

/// How another process gets bytes from private memory of this process.
enum class PullMethod : std::uint8_t {
    /// The other process has not accepted the connection yet. The bytes must be sent in records.
    unknown,
    /// The other process reads the memory with process_vm_readv(2).
    process_vm,
    /// The kernel does not permit process_vm_readv(2), for example because of ptrace_scope or PID
    /// namespaces. The bytes must be sent in records.
    none,
};

class Connection {
  public:
    Connection() = default;
    /// Constructs a connection with these addresses. If route.remote is not zero, the connection is
    /// between hosts.
    explicit Connection(const Route& route) noexcept
        : route_(route), between_hosts_(static_cast<bool>(route.remote)) {}
    virtual ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Whether the other process is on another host. If so, pull() and share() fail, and all data
    /// must be sent in records.
    [[nodiscard]] bool between_hosts() const noexcept { return between_hosts_; }
    /// Returns the addresses of both hosts. They are zeros for a connection within this host.
    [[nodiscard]] const Route& route() const noexcept { return route_; }
    /// Whether the other host receives the data that was sent. False while a connection to another
    /// host is being established, and while the other host acknowledges no data, for example
    /// because a cable is unplugged. True if the other process is only stopped or busy, because its
    /// kernel acknowledges the data.
    [[nodiscard]] virtual bool delivers() noexcept { return true; }

    /// Returns the slot of the other process on its host.
    [[nodiscard]] virtual unsigned slot() const noexcept = 0;
    /// A pointer that the user of the node can set. The fabric does not use it.
    void* user = nullptr;

    /// Returns the maximum length of a record in bytes.
    [[nodiscard]] virtual std::size_t max_record() const noexcept = 0;
    /// Sends a record. Its bytes are those of all @p parts, in order. Rings the doorbell if the
    /// other process sleeps.
    [[nodiscard]] virtual Sent send(Lane lane,
                                    std::span<const std::span<const std::byte>> parts) noexcept = 0;
    /// Reserves space for a record of @p length bytes in a lane. The caller writes the record there
    /// and calls commit(), so that it is not copied. No other function may be called for this lane
    /// between reserve() and commit(). Returns null if the lane is full, the connection is closed,
    /// or the connection does not support this function; the caller then calls send().
    [[nodiscard]] virtual std::byte* reserve(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
        return nullptr;
    }
    virtual void commit(Lane lane, std::size_t length) noexcept {
        static_cast<void>(lane);
        static_cast<void>(length);
    }
    /// Returns whether a record of @p length bytes fits into the lane. Returns true for a closed
    /// connection, so that the caller does not wait forever; send() then returns Sent::closed.
    [[nodiscard]] virtual bool has_room(Lane lane, std::size_t length) noexcept = 0;
    /// Returns the number of requests that this process has sent on this connection.
    [[nodiscard]] virtual std::uint64_t sent() const noexcept = 0;
    /// Returns how many of these requests the other process has consumed. Their responses may
    /// arrive later.
    [[nodiscard]] virtual std::uint64_t taken() const noexcept = 0;

    /// Permits the other process to write to memory of this process until withdraw_grants() is
    /// called. A later grant may replace this permission. Returns false if the permission was not
    /// granted.
    virtual bool grant(const WriteGrant& grant) noexcept {
        static_cast<void>(grant);
        return false;
    }
    /// Withdraws all permissions that grant() has given to the other process. The other process may
    /// still be executing a write that it began before; see write_in_progress().
    virtual void withdraw_grants() noexcept {}
    /// Returns whether the other process may still be executing a write that it began before
    /// withdraw_grants(). Returns false when the other process has ended. If the write does not
    /// end within 5 seconds, closes the connection and returns false.
    [[nodiscard]] virtual bool write_in_progress() noexcept { return false; }
    /// Writes @p bytes directly to memory of the other process, with the permission of its grant().
    /// Such a write must not overtake requests, so all requests that were sent must have been
    /// consumed. Returns false if nothing was written; the caller then sends a record.
    /// @param writer   WriteGrant::writer
    /// @param key      WriteGrant::key
    /// @param address  address of the first byte, in the address range that begins with
    ///     WriteGrant::first
    [[nodiscard]] virtual bool write_granted(std::uint64_t writer, std::uint64_t key,
                                             std::uint64_t address,
                                             std::span<const std::byte> bytes) noexcept {
        static_cast<void>(writer);
        static_cast<void>(key);
        static_cast<void>(address);
        static_cast<void>(bytes);
        return false;
    }

    /// Returns how the other process gets bytes from private memory of this process.
    [[nodiscard]] virtual PullMethod pull_method() const noexcept = 0;
    /// Copies bytes from memory of the other process. Returns 0 or an errno: EFAULT (the address is
    /// not mapped in the other process), ESRCH (it has ended), EPERM (the kernel does not permit
    /// the access), EINVAL (@p share is unknown, or the range exceeds the shared memory).
    [[nodiscard]] virtual int pull(std::uint64_t address, std::uint32_t share,
                                   std::span<std::byte> into) noexcept = 0;

    /// Returns how often withdraw() was called for this lane. Segments that are sent now contain
    /// this number as Segment::offer.
    [[nodiscard]] virtual std::uint32_t offer(Lane lane) const noexcept = 0;
    /// Invalidates all segments that were sent in this lane. After this call, their memory may be
    /// changed or freed. If the other process has copied from the memory meanwhile, its call of
    /// stands() returns false.
    virtual void withdraw(Lane lane) noexcept = 0;
    /// Returns whether segments with this Segment::offer are still valid. It must be called after
    /// pull(). If it returns false, the copied bytes must not be used.
    [[nodiscard]] virtual bool stands(Lane lane, std::uint32_t offer) const noexcept = 0;

    /// Shares the first @p length bytes of @p fd with the other process, which maps them read-only.
    /// The caller still owns @p fd. @p id, which is not 0, identifies the memory in Segment::share.
    /// Returns 0 if the descriptor was sent or queued. Handler::on_shared() later reports the
    /// result of the other process: 0 or an errno, such as EACCES for a memfd without
    /// F_SEAL_SHRINK, which could shrink and raise SIGBUS. Returns an errno on failure: EINVAL (@p
    /// id or @p length is 0), EBADF, EEXIST (the id is in use), EAGAIN (too many messages are
    /// queued), EMFILE, ENOMEM, ESRCH (the process has ended), EOPNOTSUPP (the process is on
    /// another host).
    [[nodiscard]] virtual int share(std::uint32_t id, int fd, std::size_t length) noexcept = 0;
    /// Ends the sharing of the memory @p id. The other process unmaps it.
    virtual void unshare(std::uint32_t id) noexcept = 0;

  private:
    Route route_;
    bool between_hosts_ = false;
};

} // namespace softverbs::fabric
