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

/// What an operation waits for.
enum class Stage : std::uint8_t {
    idle,
    /// A send or a notification: room at the peer, behind others.
    queued,
    /// A send: to be granted a buffer.
    announced,
    /// A receive: its message.
    posted,
    /// A receive: that its grant can be sent; then that it was written.
    granting,
    granted,
    /// A receive: that its refusal can be sent.
    refusing,
    /// Its data to be moved by the devices.
    moving,
    /// A send: that the peer can be told of what was written.
    telling,
    /// Nothing but to be asked for.
    done,
};

struct Operation {
    Purpose purpose{};
    Stage stage = Stage::idle;
    /// put: with a value for the peer.
    bool notifies = false;
    /// Whether the peer knows of what was granted and written; put: of what was put.
    bool told = false;
    /// receive: the peer was told where to write before it had said that there is a message.
    bool offered = false;
    /// send: whether the peer knows the length of what is written; otherwise it has to be told.
    bool length_known = true;
    /// An errno value.
    int error = 0;
    std::uint32_t generation = 0;
    /// The other operations of the list that this one is in.
    std::uint32_t next = 0;
    std::uint32_t previous = 0;
    /// Completions that are still to come.
    std::uint32_t pending = 0;
    /// The peer's operation.
    std::uint32_t peer = 0;

    const MemoryState* memory = nullptr;
    std::uintptr_t address = 0;
    /// Of the buffer.
    std::uint64_t length = 0;
    /// Of the message.
    std::uint64_t bytes = 0;
    /// The tag, or the value.
    std::uint64_t value = 0;
    /// Of the message: what was handed to the devices, and how far that may go.
    std::uint64_t moved = 0;
    std::uint64_t window = 0;
    /// The device with the next piece.
    std::uint32_t rail = 0;
    /// receive: the slot its data waits in, for a device to copy it.
    std::uint32_t slot = 0;
    /// send: the offer that it took, or Offers::none.
    std::uint32_t offer = 0;
    /// By which time it must have ended.
    std::int64_t deadline = 0;
    /// Where the window is at the peer, and from which byte of the message on.
    std::uint64_t remote_address = 0;
    std::uint64_t remote_begin = 0;
    RemoteTable remote{};
};

/// Operations by number, and those that are free. Nothing is allocated once it is made.
class OperationTable {
  public:
    static constexpr std::uint32_t none = 0xffff;

    /// In order, of operations that are in no other list.
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

    /// A free operation, or none.
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
        // The next to be taken: what it is made of is at hand.
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

    /// What a peer calls an operation: its number, and enough of its generation to know it by.
    [[nodiscard]] std::uint32_t name(std::uint32_t i) const noexcept {
        return i | (operations_[i].generation & 0xffff) << 16;
    }
    /// The operation that a peer means, or none.
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
