// SPDX-License-Identifier: BSD-3-Clause
#include "ring.hpp"

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "support/transport.hpp"

namespace mpi_ring {

using namespace rdmabuf::transport;
using rdmabuf::wait_forever;
using std::chrono::steady_clock;

namespace {

constexpr Tag barrier_tag = ~Tag{0};

// Both at once: if each rank first waited for one neighbour, all would wait for each other.
std::pair<Channel, Channel> connect(const Endpoint& endpoint, Listener& listener,
                                    const Handle& right, std::chrono::milliseconds timeout) {
    const auto end = steady_clock::now() + timeout;
    Connector connector = examples::value_of(endpoint.start_connect(right));
    std::optional<Channel> to_right;
    std::optional<Channel> from_left;
    while (!to_right || !from_left) {
        std::error_code error;
        if (!to_right && (error = connector.try_connect(to_right)) && error.value() != EAGAIN) {
            throw std::runtime_error("to the right neighbour: " + connector.error_info().message());
        }
        if (!from_left && (error = listener.try_accept(from_left)) && error.value() != EAGAIN) {
            throw std::runtime_error("from the left neighbour: " + listener.error_info().message());
        }
        if (steady_clock::now() >= end) {
            throw std::runtime_error(std::string("the ") + (to_right ? "left" : "right") +
                                     " neighbour has not connected within " +
                                     std::to_string(timeout.count()) + " ms");
        }
        std::this_thread::yield();
    }
    return {*std::move(to_right), *std::move(from_left)};
}

} // namespace

Ring::Ring(const Endpoint& endpoint, Listener& listener, int rank, std::span<const Handle> handles,
           std::chrono::milliseconds timeout)
    : Ring(static_cast<std::size_t>(rank), handles.size(),
           connect(endpoint, listener,
                   handles[(static_cast<std::size_t>(rank) + 1) % handles.size()], timeout)) {}

Ring::Ring(std::size_t rank, std::size_t size, std::pair<Channel, Channel> channels)
    : rank_(rank),
      size_(size),
      to_right_(std::move(channels.first)),
      from_left_(std::move(channels.second)) {}

void Ring::check_left(std::error_code error) const {
    if (error) {
        throw std::system_error(
            error, "receiving from rank " + std::to_string((rank_ + size_ - 1) % size_));
    }
}

void Ring::check_right(std::error_code error) const {
    if (error) {
        throw std::system_error(error, "sending to rank " + std::to_string((rank_ + 1) % size_));
    }
}

void Ring::barrier() {
    // After the first round rank 0 knows that all are there; after the second they know.
    for (int round = 0; round < 2; ++round) {
        if (rank_ == 0) {
            pass_on();
        }
        Request request;
        check_left(from_left_.irecv({}, nullptr, 0, barrier_tag, request));
        check_left(from_left_.wait(request, wait_forever).error);
        if (rank_ != 0) {
            pass_on();
        }
    }
}

void Ring::pass_on() {
    Request request;
    check_right(to_right_.isend({}, nullptr, 0, barrier_tag, request));
    check_right(to_right_.wait(request, wait_forever).error);
}

} // namespace mpi_ring
