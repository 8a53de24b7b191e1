// SPDX-License-Identifier: BSD-3-Clause
#include "objects/scatter_to_cqe.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/environment.hpp"
#include "objects/queue_pair.hpp"
#include "objects/tag_matching.hpp"

namespace softverbs {

std::unique_ptr<ScatterToCqe> make_scatter_to_cqe(const ibv_qp_init_attr_ex& attributes,
                                                  ScatterRequest request) {
    const ibv_qp_type type = attributes.qp_type;
    // The mlx5_ib driver of the kernel enables scatter-to-CQE only for RC and UC queue pairs
    // (create_user_qp()).
    if ((type != IBV_QPT_RC && type != IBV_QPT_UC) || request == ScatterRequest::disabled ||
        (request == ScatterRequest::none &&
         fabric::environment_variable("MLX5_SCATTER_TO_CQE") == "0")) {
        return nullptr;
    }
    const std::size_t most = fabric::environment_variable("MLX5_CQE_SIZE") == "128"
                                 ? long_scatter_length
                                 : scatter_length;
    auto made = std::make_unique<ScatterToCqe>();
    made->receives = most;
    if (type == IBV_QPT_RC && (attributes.sq_sig_all != 0 || request == ScatterRequest::allowed)) {
        made->responses = most;
        made->kept.resize(std::bit_ceil(std::size_t{attributes.cap.max_send_wr}));
    }
    return made;
}

bool prepare_scatter(const Pd& pd, std::span<const ibv_sge> entries,
                     std::span<const std::byte> data, Scatter& out) {
    out = {};
    for (const ibv_sge& entry : entries) {
        const std::size_t length = std::min<std::size_t>(entry.length, data.size());
        if (length == 0) {
            continue;
        }
        Window window{};
        const ibv_sge used{entry.addr, static_cast<std::uint32_t>(length), entry.lkey};
        if (!open_local(pd, used, true, window)) {
            return false;
        }
        if (window.data != nullptr) {
            std::memcpy(out.data.data() + out.length, data.data(), length);
            out.length += static_cast<std::uint32_t>(length);
            out.target[out.targets++] = {entry.addr, static_cast<std::uint32_t>(length)};
        }
        data = data.subspan(length);
    }
    return true;
}

bool keep_response(Qp& qp, std::uint64_t position, std::span<const std::byte> data) {
    const SendRequest& request = qp.sends[position];
    const bool has_completion = qp.signal_all || (request.flags & IBV_SEND_SIGNALED) != 0;
    const bool is_rendezvous = (request.flags & rendezvous_flag) != 0;
    if (qp.scatter_to_cqe == nullptr || data.size() > qp.scatter_to_cqe->responses ||
        data.empty() || !has_completion || is_rendezvous) {
        return false;
    }
    ScatterToCqe::Response& kept = qp.scatter_to_cqe->kept[qp.sends.place(position)];
    kept.position = position;
    kept.length = data.size();
    std::ranges::copy(data, kept.bytes.begin());
    return true;
}

std::optional<Scatter> take_response(Qp& qp) {
    const std::uint64_t position = qp.sends.first();
    if (qp.scatter_to_cqe->responses == 0) {
        return std::nullopt;
    }
    const ScatterToCqe::Response& kept = qp.scatter_to_cqe->kept[qp.sends.place(position)];
    if (kept.position != position || kept.length == 0) {
        return std::nullopt;
    }
    // Check the scatter/gather entries of the request again. If a memory region was deregistered
    // since the response arrived, copy no data.
    Scatter made;
    return prepare_scatter(qp.pd(), qp.entries(position), std::span(kept.bytes).first(kept.length),
                           made)
               ? std::optional(made)
               : std::nullopt;
}

void scatter(const Scatter& data) noexcept {
    const std::byte* from = data.data.data();
    for (const Scatter::Target& to : std::span(data.target).first(data.targets)) {
        std::memcpy(reinterpret_cast<void*>(to.address), from, to.length);
        from += to.length;
    }
}

} // namespace softverbs
