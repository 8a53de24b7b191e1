// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "objects/completion_queue.hpp"

namespace softverbs {

struct Pd;
struct Qp;

// Scatter-to-CQE: a NIC with the mlx5 driver stores the data of a small message in the completion
// queue entry. When the program polls the completion, libmlx5 copies the data with the CPU to the
// addresses in the work request.

/// Maximum number of data bytes in a completion queue entry of 64 bytes.
inline constexpr std::size_t scatter_length = 32;
/// Maximum number of data bytes in a completion queue entry of 128 bytes.
inline constexpr std::size_t long_scatter_length = 64;

/// Settings and data for scatter-to-CQE of one queue pair. Queue pairs without scatter-to-CQE have
/// no object of this class.
struct ScatterToCqe {
    /// Received messages of at most this length in bytes are copied when the program polls their
    /// completions.
    std::size_t receives = 0;
    /// Results of reads and atomics of at most this length in bytes are copied when the program
    /// polls their completions. Results of unsignaled requests are copied at once.
    std::size_t responses = 0;
    /// The result of the read or atomic at "position" in the send queue. If "length" is 0, there is
    /// no result.
    struct Response {
        std::uint64_t position = 0;
        std::size_t length = 0;
        std::array<std::byte, long_scatter_length> bytes{};
    };
    /// The results that have arrived for reads and atomics whose completions are not created yet.
    /// The index is Ring::place() of the request's position in the send queue.
    std::vector<Response> kept;
};

/// The setting for scatter-to-CQE in mlx5dv_create_qp().
enum class ScatterRequest : std::uint8_t { none, disabled, allowed };

/// Returns the ScatterToCqe for a new queue pair, or null if scatter-to-CQE is disabled or the type
/// is neither RC nor UC. Reads the environment variables MLX5_SCATTER_TO_CQE and MLX5_CQE_SIZE, as
/// libmlx5 does. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<ScatterToCqe> make_scatter_to_cqe(
    const ibv_qp_init_attr_ex& attributes, ScatterRequest request);

/// Checks that the scatter/gather list @p entries permits writing @p data. Stores the data and the
/// addresses in @p out. Omits entries in a null memory region. Returns false if an entry does not
/// permit the write.
[[nodiscard]] bool prepare_scatter(const Pd& pd, std::span<const ibv_sge> entries,
                                   std::span<const std::byte> data, Scatter& out);

/// Stores the result of the read or atomic at @p position in the send queue until this request
/// completes. Returns false if scatter-to-CQE does not apply to the result; the caller must then
/// copy the result to the buffers of the request now.
[[nodiscard]] bool keep_response(Qp& qp, std::uint64_t position, std::span<const std::byte> data);
/// Returns the data that must be copied when the program polls the completion of the oldest send
/// request, which has succeeded. Returns no value if the data was already copied, or if a memory
/// region of the request no longer permits the write.
[[nodiscard]] std::optional<Scatter> take_response(Qp& qp);

/// Copies the data of a completion to the buffers of its work request. @p data contains the data
/// and the addresses of the buffers.
void scatter(const Scatter& data) noexcept;

} // namespace softverbs
