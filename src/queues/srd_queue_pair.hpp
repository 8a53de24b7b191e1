// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include <rdmabuf/context.hpp>
#include <rdmabuf/region.hpp>

namespace rdmabuf::detail {

inline constexpr const char* create_srd_function = "efadv_create_qp_ex";

/// Creates an SRD queue pair with efadv_create_qp_ex(3). Returns null and sets errno on failure, as
/// ibv_create_qp_ex(3) does.
[[nodiscard]] ibv_qp* create_srd_queue_pair(ibv_context* context,
                                            ibv_qp_init_attr_ex* attributes) noexcept;

/// Returns the IBV_QP_EX_WITH_* flags of the operations that SRD queue pairs of the device support.
[[nodiscard]] std::uint64_t srd_operations(const SrdAttributes& device) noexcept;

/// Checks the value of QueuePairOptions::access for an SRD queue pair.
/// @throws Error EOPNOTSUPP if @p access has a value: SRD queue pairs have no access flags
void check_srd_access(std::optional<Access> access);

} // namespace rdmabuf::detail
