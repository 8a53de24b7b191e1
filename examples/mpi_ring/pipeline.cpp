// SPDX-License-Identifier: BSD-3-Clause
#include "pipeline.hpp"

#include <cerrno>
#include <thread>

#include "reduction.hpp"

namespace mpi_ring {

using rdmabuf::wait_forever;
using rdmabuf::transport::Outcome;

Pipeline::Pipeline(Ring& ring, RingMemory& memory, const Segments& segments,
                   const PipelineOptions& options, Steps steps)
    : ring_(ring),
      memory_(memory),
      segments_(segments),
      options_(options),
      steps_(steps),
      messages_((steps.reducing + steps.copying) * segments.chunks()),
      receives_(options.window),
      sends_(options.window) {}

void Pipeline::run() {
    while (received_ < messages_ || sent_ < messages_) {
        while (may_receive()) {
            begin_receive();
        }
        while (may_send()) {
            begin_send();
        }
        const bool received = end_receive();
        if (!end_send() && !received) {
            // There may be more ranks than processors.
            std::this_thread::yield();
        }
    }
}

Piece Pipeline::sent_piece(std::size_t message) const noexcept {
    const std::size_t ranks = segments_.ranks();
    const std::size_t segment = (ring_.rank() + 2 * ranks - step_of(message)) % ranks;
    return segments_.chunk(segment, message % segments_.chunks());
}

Piece Pipeline::final_piece(std::size_t message) const noexcept {
    // What is sent a step later.
    return sent_piece(message + segments_.chunks());
}

Piece Pipeline::received_piece(std::size_t message) const noexcept {
    Piece piece = final_piece(message);
    if (reduces(message)) {
        piece.offset = segments_.total() + message % receives_.size() * segments_.chunk_size();
    }
    return piece;
}

bool Pipeline::may_receive() const noexcept {
    if (receives_begun_ == messages_ || receives_begun_ - received_ == receives_.size()) {
        return false;
    }
    // Sums take the place of numbers that this rank has sent itself, in as many messages before.
    const std::size_t reduced = steps_.reducing * segments_.chunks();
    return reduced == 0 || receives_begun_ < reduced || receives_begun_ - reduced < sent_;
}

bool Pipeline::may_send() const noexcept {
    if (sends_begun_ == messages_ || sends_begun_ - sent_ == sends_.size()) {
        return false;
    }
    return sends_begun_ < segments_.chunks() || sends_begun_ - segments_.chunks() < received_;
}

void Pipeline::begin_receive() {
    const std::size_t message = receives_begun_++;
    const Piece piece = received_piece(message);
    ring_.check_left(ring_.from_left().irecv(memory_.registered(), memory_.at(piece.offset),
                                             piece.length, message,
                                             receives_[message % receives_.size()]));
}

void Pipeline::begin_send() {
    const std::size_t message = sends_begun_++;
    const Piece piece = sent_piece(message);
    ring_.check_right(ring_.to_right().isend(memory_.registered(), memory_.at(piece.offset),
                                             piece.length, message,
                                             sends_[message % sends_.size()]));
}

bool Pipeline::end_receive() {
    if (received_ == receives_begun_) {
        return false;
    }
    const Outcome outcome = ring_.from_left().test(receives_[received_ % receives_.size()]);
    if (!outcome.done) {
        return false;
    }
    ring_.check_left(outcome.error);
    if (outcome.bytes != received_piece(received_).length) {
        // The rank was started with other options.
        ring_.check_left(std::make_error_code(std::errc::bad_message));
    }
    take_in(received_);
    ++received_;
    return true;
}

bool Pipeline::end_send() {
    if (sent_ == sends_begun_) {
        return false;
    }
    const Outcome outcome = ring_.to_right().test(sends_[sent_ % sends_.size()]);
    if (!outcome.done) {
        return false;
    }
    ring_.check_right(outcome.error);
    ++sent_;
    return true;
}

void Pipeline::take_in(std::size_t message) {
    const Piece from = received_piece(message);
    if (from.length == 0) {
        return;
    }
    // Of memory on a device: its own reads, which the copies below are, see the numbers only then.
    rdmabuf::transport::Request flush;
    ring_.check_left(ring_.from_left().iflush(memory_.registered(), memory_.at(from.offset),
                                              from.length, flush));
    ring_.check_left(ring_.from_left().wait(flush, wait_forever).error);
    if (!reduces(message)) {
        return;
    }
    memory_.combine(from, final_piece(message),
                    [&](std::span<const std::byte> numbers, std::span<std::byte> sums) {
                        add(options_.type, numbers, sums);
                    });
}

} // namespace mpi_ring
