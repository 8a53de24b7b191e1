// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/dma_handle.hpp>

/// What newer rdma-core has and the one this is built with may not: the functions are looked for in
/// the process, once. The declarations are the part of its ABI that is used here; a build with a
/// libibverbs that has them compares the two.
namespace rdmabuf::detail {

/// ibv_mr_init_attr of rdma-core 59; `buf` came with 64 and is not read by those before.
struct MrInitAttr {
    std::size_t length;
    int access;
    std::uint64_t comp_mask;
    std::uint64_t iova;
    void* addr;
    int fd;
    std::uint64_t fd_offset;
    ibv_dmah* dmah;
    void* buf;
};
inline constexpr std::uint64_t mr_iova = 1;
inline constexpr std::uint64_t mr_addr = 2;
inline constexpr std::uint64_t mr_fd = 4;
inline constexpr std::uint64_t mr_fd_offset = 8;
inline constexpr std::uint64_t mr_dmah = 16;

/// ibv_dmah_init_attr.
struct DmahInitAttr {
    std::uint32_t comp_mask;
    std::uint32_t cpu_id;
    std::uint8_t ph;
    std::uint8_t tph_mem_type;
};
inline constexpr std::uint32_t dmah_cpu_id = 1;
inline constexpr std::uint32_t dmah_ph = 2;
inline constexpr std::uint32_t dmah_memory = 4;

/// MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT.
inline constexpr int mlx5_data_direct = 1;

/// Null where it is not there.
struct VerbsExtensions {
    ibv_mr* (*reg_mr_ex)(ibv_pd* pd, MrInitAttr* attributes) = nullptr;
    ibv_dmah* (*alloc_dmah)(ibv_context* context, DmahInitAttr* attributes) = nullptr;
    int (*dealloc_dmah)(ibv_dmah* handle) = nullptr;
    /// Of libmlx5, if that is loaded: libibverbs does so where there is a NIC for it.
    ibv_mr* (*mlx5_reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                  std::uint64_t iova, int fd, int access,
                                  int mlx5_access) = nullptr;
};
[[nodiscard]] const VerbsExtensions& verbs_extensions();

/// Returns a function of the program or of libmlx5, if libibverbs has loaded libmlx5; null if there
/// is none.
[[nodiscard]] void* find_mlx5_function(const char* name) noexcept;

/// Why mlx5dv_reg_dmabuf_mr cannot be called, and what to do.
[[nodiscard]] Availability data_direct_function();

} // namespace rdmabuf::detail
