// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>

namespace rdmabuf::transport::detail {

enum class Purpose : std::uint8_t { send, receive, put, get, flush };

/// The state of an operation: the event that it waits for.
enum class Stage : std::uint8_t {
    idle,
    /// A send or a notification waits for credits, behind earlier messages.
    queued,
    /// A send has sent its RTS (request to send) and waits for the CTS (clear to send).
    announced,
    /// A receive waits for its message.
    posted,
    /// A receive waits until its CTS (clear to send) can be sent.
    granting,
    /// A receive has sent its CTS and waits for the FIN, which reports that the data is written.
    granted,
    /// A receive whose message is too long waits until its NACK can be sent.
    refusing,
    /// The operation waits for the devices to transfer its data.
    moving,
    /// A send has posted its RDMA writes and waits until it can send the FIN, which reports them to
    /// the peer.
    telling,
    /// The operation is completed, but test() has not reported it yet.
    done,
};

struct Operation {
    Purpose purpose{};
    Stage stage = Stage::idle;
    /// True for iput_notify(): a value for the peer follows the data.
    bool notifies = false;
    /// For a send: true if the FIN of the current part was sent. For a put: true if the
    /// notification was sent.
    bool told = false;
    /// For a receive: true if the receive was advertised to the peer before the message arrived.
    bool offered = false;
    /// For a send: false if the receiver cannot derive the length of the message, so that a FIN
    /// message must contain the length.
    bool length_known = true;
    /// The errno value with which the operation failed; 0 for success.
    int error = 0;
    std::uint32_t generation = 0;
    /// Index of the next operation in the same list.
    std::uint32_t next = 0;
    /// Index of the previous operation in the same list.
    std::uint32_t previous = 0;
    /// The number of posted work requests that have not completed.
    std::uint32_t pending = 0;
    /// The peer's operation for the same message, as OperationTable::name() encodes it.
    std::uint32_t peer = 0;

    const MemoryState* memory = nullptr;
    std::uintptr_t address = 0;
    /// Length of the local memory in bytes.
    std::uint64_t length = 0;
    /// Length of the message in bytes.
    std::uint64_t bytes = 0;
    /// For a send or a receive: the tag of the message. For iput_notify(): the parameter `value`.
    std::uint64_t value = 0;
    /// Number of bytes of the message that were posted to the devices; at most `window`.
    std::uint64_t moved = 0;
    /// Number of bytes of the message that may be posted so far: all bytes, or only the bytes that
    /// the peer has granted.
    std::uint64_t window = 0;
    /// Index of the device that transfers the next fragment.
    std::uint32_t rail = 0;
    /// For a receive: index of the bounce buffer of its message, while a device copies the data
    /// from this buffer; otherwise none.
    std::uint32_t slot = 0;
    /// For a send: index of the advertised receive to which the message is written, or
    /// Offers::none.
    std::uint32_t offer = 0;
    /// The time at which the operation fails with ETIMEDOUT, in nanoseconds of now_ns(); 0: never.
    std::int64_t deadline = 0;
    /// Address of the part of the message that the peer has granted, in the memory of the peer.
    std::uint64_t remote_address = 0;
    /// Offset of the granted part in the message, in bytes.
    std::uint64_t remote_begin = 0;
    RemoteTable remote{};
};

/// All operations of a channel and a list of the free operations. The table allocates memory only
/// in its constructor.
class OperationTable {
  public:
    static constexpr std::uint32_t none = 0xffff;

    /// A linked list of operations. An operation is in at most one list.
    class List {
      public:
        [[nodiscard]] bool empty() const noexcept { return first_ == none; }
        [[nodiscard]] std::uint32_t front() const noexcept { return first_; }

      private:
        friend class OperationTable;
        std::uint32_t first_ = none;
        std::uint32_t last_ = none;
    };

    explicit OperationTable(std::uint32_t depth) : operations_(depth) {
        for (std::uint32_t i = 0; i < depth; ++i) {
            append(free_, i);
        }
    }

    [[nodiscard]] Operation& operator[](std::uint32_t i) noexcept { return operations_[i]; }
    [[nodiscard]] std::uint32_t size() const noexcept {
        return static_cast<std::uint32_t>(operations_.size());
    }
    [[nodiscard]] std::uint32_t next(std::uint32_t i) const noexcept { return operations_[i].next; }
    [[nodiscard]] std::uint32_t in_use() const noexcept { return in_use_; }
    [[nodiscard]] bool full() const noexcept { return in_use_ == size(); }

    /// Takes an operation from the free list. @return its index, or none if all are in use
    [[nodiscard]] std::uint32_t take() noexcept {
        const std::uint32_t i = free_.first_;
        if (i != none) {
            remove(free_, i);
            ++in_use_;
        }
        return i;
    }
    void give_back(std::uint32_t i) noexcept {
        operations_[i].stage = Stage::idle;
        ++operations_[i].generation;
        --in_use_;
        // The operation is put at the front of the free list, because its memory is still in the
        // CPU's cache.
        operations_[i].next = free_.first_;
        operations_[i].previous = none;
        (free_.first_ == none ? free_.last_ : operations_[free_.first_].previous) = i;
        free_.first_ = i;
    }

    void append(List& list, std::uint32_t i) noexcept {
        operations_[i].next = none;
        operations_[i].previous = list.last_;
        (list.last_ == none ? list.first_ : operations_[list.last_].next) = i;
        list.last_ = i;
    }
    void remove(List& list, std::uint32_t i) noexcept {
        const Operation& operation = operations_[i];
        (operation.previous == none ? list.first_ : operations_[operation.previous].next) =
            operation.next;
        (operation.next == none ? list.last_ : operations_[operation.next].previous) =
            operation.previous;
    }

    /// Returns the number by which messages refer to an operation: its index and the lower 16 bits
    /// of its generation, which counts the uses of this index. The generation detects messages for
    /// an earlier operation with the same index.
    [[nodiscard]] std::uint32_t name(std::uint32_t i) const noexcept {
        return i | (operations_[i].generation & 0xffff) << 16;
    }
    /// Returns the index of the operation that a peer's message refers to; none if the operation
    /// does not exist any more.
    [[nodiscard]] std::uint32_t named(std::uint32_t name) const noexcept {
        const std::uint32_t i = name & 0xffff;
        return i < size() && this->name(i) == name ? i : none;
    }

  private:
    std::vector<Operation> operations_;
    List free_;
    std::uint32_t in_use_ = 0;
};

} // namespace rdmabuf::transport::detail
