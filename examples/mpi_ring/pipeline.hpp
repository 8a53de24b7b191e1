// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include <rdmabuf/transport/request.hpp>

#include "numbers.hpp"
#include "ring.hpp"
#include "ring_memory.hpp"
#include "segments.hpp"

namespace mpi_ring {

struct PipelineOptions {
    NumberType type = NumberType::float32;
    /// The longest message, in bytes; a multiple of 8.
    std::size_t chunk = std::size_t{256} << 10;
    /// Messages under way at a time, each way.
    std::size_t window = 4;
};

/// Passes segments around the ring, a chunk at a time. In step s a rank sends the segment that is s
/// places before its own to the right, and receives the one before that from the left: what it
/// sends in a step is what it received in the last, so a chunk goes on as soon as it is there,
/// while others of its segment are still on their way here.
///
/// In the reducing steps a chunk is received beside the numbers, and added to this rank's own. In
/// the others it takes its place among them. Messages are counted through all steps; the right
/// neighbour counts the same ones as received.
class Pipeline {
  public:
    struct Steps {
        std::size_t reducing;
        std::size_t copying;
    };

    /// @param memory  the segments, and inbox_size() bytes behind them where there are steps that
    ///                reduce
    Pipeline(Ring& ring, RingMemory& memory, const Segments& segments,
             const PipelineOptions& options, Steps steps);

    /// @throws std::system_error when a neighbour is lost, rdmabuf::Error
    void run();

    /// What receiving numbers to add takes, in bytes.
    [[nodiscard]] static std::size_t inbox_size(const Segments& segments,
                                                const PipelineOptions& options) noexcept {
        return options.window * segments.chunk_size();
    }

  private:
    using Request = rdmabuf::transport::Request;

    [[nodiscard]] std::size_t step_of(std::size_t message) const noexcept {
        return message / segments_.chunks();
    }
    [[nodiscard]] bool reduces(std::size_t message) const noexcept {
        return step_of(message) < steps_.reducing;
    }
    [[nodiscard]] Piece sent_piece(std::size_t message) const noexcept;
    /// Where a message belongs, and where it is received.
    [[nodiscard]] Piece final_piece(std::size_t message) const noexcept;
    [[nodiscard]] Piece received_piece(std::size_t message) const noexcept;

    [[nodiscard]] bool may_receive() const noexcept;
    [[nodiscard]] bool may_send() const noexcept;
    void begin_receive();
    void begin_send();
    /// Each tells whether the oldest one was done.
    bool end_receive();
    bool end_send();
    void take_in(std::size_t message);

    Ring& ring_;
    RingMemory& memory_;
    Segments segments_;
    PipelineOptions options_;
    Steps steps_;
    std::size_t messages_;

    /// Those under way, by number modulo the window.
    std::vector<Request> receives_;
    std::vector<Request> sends_;
    /// How many were begun, and how many of those are done.
    std::size_t receives_begun_ = 0;
    std::size_t received_ = 0;
    std::size_t sends_begun_ = 0;
    std::size_t sent_ = 0;
};

} // namespace mpi_ring
