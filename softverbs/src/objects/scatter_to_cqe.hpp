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

// Scatter-to-CQE: a NIC of the driver mlx5 puts the data of a small message into the completion
// entry. libmlx5 copies it to the addresses of the work request, by the CPU, when the program polls
// the completion.

/// Largest payload in a completion entry of 64 or 128 bytes.
inline constexpr std::size_t scatter_length = 32;
inline constexpr std::size_t long_scatter_length = 64;

/// Scatter-to-CQE of one queue pair. A queue pair without it has none of these.
struct ScatterToCqe {
    /// Receives of at most this many bytes are scattered when they are polled.
    std::size_t receives = 0;
    /// The same for reads and atomics that get a completion.
    std::size_t responses = 0;
    /// The data of a response. It is valid if @p position is that of the
    /// request and @p length is not 0.
    struct Response {
        std::uint64_t position = 0;
        std::size_t length = 0;
        std::array<std::byte, long_scatter_length> bytes{};
    };
    /// Responses, at Ring::place() of their requests.
    std::vector<Response> kept;
};

/// What the creator of a queue pair requests with mlx5dv_create_qp().
enum class ScatterRequest : std::uint8_t { none, disabled, allowed };

/// Returns the scatter-to-CQE of a new queue pair, or null if it has none. Reads the environment
/// variables MLX5_SCATTER_TO_CQE and MLX5_CQE_SIZE, as libmlx5 does. Throws std::bad_alloc.
[[nodiscard]] std::unique_ptr<ScatterToCqe> make_scatter_to_cqe(
    const ibv_qp_init_attr_ex& attributes, ScatterRequest request);

/// Checks the entries of a work request as for a write of @p length bytes, and stores the data and
/// the addresses of the entries in @p out. Entries of a null memory region are not stored. False:
/// an entry does not permit the write.
[[nodiscard]] bool prepare_scatter(const Pd& pd, std::span<const ibv_sge> entries,
                                   std::span<const std::byte> data, Scatter& out);

/// Keeps the data of the response to the send request at @p position. False: the request is not
/// scattered when it is polled.
[[nodiscard]] bool keep_response(Qp& qp, std::uint64_t position, std::span<const std::byte> data);
/// The scatter for the completion of the oldest send request, which has succeeded; nullopt if its
/// data is not in the completion entry.
[[nodiscard]] std::optional<Scatter> take_response(Qp& qp);

/// Copies the data to the addresses of the work request.
void scatter(const Scatter& data) noexcept;

} // namespace softverbs
