// SPDX-License-Identifier: BSD-3-Clause
#include "ring.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "support/transport.hpp"

namespace mpi_ring {

using namespace rdmabuf::transport;
using examples::value_of;
using std::chrono::steady_clock;

RingMemory::RingMemory(const Endpoint& endpoint, const rdmabuf::Resolver& resolver,
                       const std::string& kind, std::size_t size) {
    if (kind == "host") {
        host_.resize(size);
    } else {
        buffer_ = resolver.allocator(kind)->allocate(size);
    }
    const void* const address =
        buffer_ ? reinterpret_cast<const void*>(buffer_->address()) : host_.data();
    registered_ = value_of(endpoint.register_memory(address, size));
    // The cache entry of the memory has the registration path, for example `dmabuf`. Memory that
    // needs several regions has no cache entry.
    const auto lease = endpoint.cache().find(registered_->address(), size, registered_->access());
    description_ = kind + " memory, path " +
                   (lease ? to_string(lease.registration().path()) : "of several regions");
}

void RingMemory::write(std::size_t offset, std::span<const float> numbers) {
    const auto bytes = std::as_bytes(numbers);
    if (buffer_) {
        buffer_->copy_in(offset, bytes);
    } else {
        std::ranges::copy(bytes, host_.begin() + static_cast<std::ptrdiff_t>(offset));
    }
}

std::vector<float> RingMemory::read(std::size_t offset, std::size_t count) const {
    std::vector<float> numbers(count);
    const auto bytes = std::as_writable_bytes(std::span(numbers));
    if (buffer_) {
        buffer_->copy_out(offset, bytes);
    } else {
        std::ranges::copy(std::span(host_).subspan(offset, bytes.size()), bytes.begin());
    }
    return numbers;
}

Ring::Ring(const Endpoint& endpoint, Listener& listener, std::size_t rank,
           std::span<const Handle> handles)
    : rank_(rank), size_(handles.size()) {
    const auto deadline = steady_clock::now() + std::chrono::seconds(30);
    Connector connector = value_of(endpoint.start_connect(handles[(rank + 1) % size_]));
    // The loop tries to connect to the right neighbour and to accept the left neighbour, without
    // blocking. If each rank first waited for its left neighbour, all ranks would wait forever.
    while (!to_right_ || !from_left_) {
        std::error_code error;
        if (!to_right_ && (error = connector.try_connect(to_right_)) && error.value() != EAGAIN) {
            throw std::runtime_error("to the right neighbour: " + connector.error_info().message());
        }
        if (!from_left_ && (error = listener.try_accept(from_left_)) && error.value() != EAGAIN) {
            throw std::runtime_error("from the left neighbour: " + listener.error_info().message());
        }
        if (steady_clock::now() >= deadline) {
            throw std::runtime_error(std::string("the ") + (to_right_ ? "left" : "right") +
                                     " neighbour has not connected within 30 seconds");
        }
        std::this_thread::yield();
    }
}

void Ring::check(std::error_code error, const char* what, std::size_t neighbour) const {
    if (error) {
        throw std::system_error(error, what + std::to_string(neighbour % size_));
    }
}

void Ring::shift(const RingMemory& memory, std::size_t send_offset, std::size_t send_length,
                 std::size_t receive_offset, std::size_t receive_length) {
    constexpr Tag tag = 0; // messages of one channel arrive in order
    const auto left = [&](std::error_code e) {
        check(e, "receiving from rank ", rank_ + size_ - 1);
    };
    const auto right = [&](std::error_code e) { check(e, "sending to rank ", rank_ + 1); };
    Request sending;
    Request receiving;
    left(from_left_->irecv(memory.registered(), memory.at(receive_offset), receive_length, tag,
                           receiving));
    right(to_right_->isend(memory.registered(), memory.at(send_offset), send_length, tag, sending));
    // A channel makes progress only while the program calls its functions, so the loop tests both
    // channels in turn.
    for (bool received = false, sent = false; !received || !sent; std::this_thread::yield()) {
        if (!received) {
            const auto completion = from_left_->test(receiving);
            left(completion.error);
            received = completion.done;
        }
        if (!sent) {
            const auto completion = to_right_->test(sending);
            right(completion.error);
            sent = completion.done;
        }
    }
}

} // namespace mpi_ring
