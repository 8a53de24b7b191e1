// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/dma_handle.hpp>

/// Functions of newer versions of rdma-core than the one that this library may be built with. They
/// are looked up in the process at run time. The declarations are the part of the ABI of rdma-core
/// that is used here; a build with a libibverbs that has them compares the two.
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
    /// Also of libmlx5. Returns 0, or an errno value: ENODEV without a data-direct function.
    int (*mlx5_data_direct_path)(ibv_context* context, char* path, std::size_t size) = nullptr;

    [[nodiscard]] bool complete() const noexcept {
        return reg_mr_ex != nullptr && alloc_dmah != nullptr && dealloc_dmah != nullptr &&
               mlx5_reg_dmabuf_mr != nullptr && mlx5_data_direct_path != nullptr;
    }
};
/// The functions that exist now. A function that is missing is looked up again after the process
/// has loaded another object: libibverbs loads libmlx5 with the first mlx5 device.
[[nodiscard]] VerbsExtensions verbs_extensions();

/// Returns a function of the program or of a provider library such as "libmlx5.so.1", if libibverbs
/// has loaded that library; null if there is none.
[[nodiscard]] void* find_provider_function(const char* library, const char* name) noexcept;
[[nodiscard]] inline void* find_mlx5_function(const char* name) noexcept {
    return find_provider_function("libmlx5.so.1", name);
}

/// Whether mlx5dv_reg_dmabuf_mr can be called, or why not.
[[nodiscard]] Availability data_direct_function();
/// Whether the device has a data-direct function, or why not.
[[nodiscard]] Availability data_direct_of(const ibv_context* context);

} // namespace rdmabuf::detail
