// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

namespace softverbs::fabric {

/// A queue of bytes that could not be sent yet, because the buffer of a stream socket was full. The
/// allocated memory is limited to about four times the largest number of bytes that were queued at
/// one time, even if the queue is never empty.
class OutputBuffer {
  public:
    [[nodiscard]] bool empty() const noexcept { return begin_ == storage_.size(); }
    [[nodiscard]] std::size_t size() const noexcept { return storage_.size() - begin_; }
    /// Returns all queued bytes. The next call of append() or remove() invalidates the returned
    /// span.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return std::span(storage_).subspan(begin_);
    }
    /// Returns the size in bytes of the memory that is allocated for the queue.
    [[nodiscard]] std::size_t capacity() const noexcept { return storage_.capacity(); }

    /// @throws std::bad_alloc
    void append(std::span<const std::byte> bytes) {
        storage_.insert(storage_.end(), bytes.begin(), bytes.end());
    }
    /// Removes the first @p count bytes from the queue, because the socket has accepted them.
    void remove(std::size_t count) noexcept {
        begin_ += std::min(count, size());
        // Move the remaining bytes to the start only if they are fewer than the removed bytes. Each
        // byte is then moved at most once on average.
        if (begin_ > storage_.size() / 2) {
            storage_.erase(storage_.begin(),
                           storage_.begin() + static_cast<std::ptrdiff_t>(begin_));
            begin_ = 0;
        }
    }

    /// Sends as many queued bytes as the socket accepts without blocking, and removes them from the
    /// queue. Returns 0 if all bytes were sent, EAGAIN if the socket is full, or another errno if
    /// the connection has failed.
    [[nodiscard]] int send_to(int socket) noexcept {
        while (!empty()) {
            const ssize_t sent =
                ::send(socket, bytes().data(), size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent >= 0) {
                remove(static_cast<std::size_t>(sent));
            } else if (errno != EINTR) {
                return errno;
            }
        }
        return 0;
    }

  private:
    std::vector<std::byte> storage_;
    /// Number of bytes at the start of storage_ that were removed.
    std::size_t begin_ = 0;
};

} // namespace softverbs::fabric
