// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/error.hpp>

/// Declares functions of newer versions of rdma-core, which the headers of this build may lack. The
/// functions are looked up in the process at run time. If the headers have DMA handles,
/// static_asserts compare MrInitAttr, DmahInitAttr and their flags with the headers.
namespace rdmabuf::detail {

/// This struct has the layout of ibv_mr_init_attr in rdma-core 64. The layout in rdma-core 59 is
/// the same without the last member, `buf`. Versions before 64 do not read `buf`.
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

/// This struct has the layout of ibv_dmah_init_attr in rdma-core 59.
struct DmahInitAttr {
    std::uint32_t comp_mask;
    std::uint32_t cpu_id;
    std::uint8_t ph;
    std::uint8_t tph_mem_type;
};
inline constexpr std::uint32_t dmah_cpu_id = 1;
inline constexpr std::uint32_t dmah_ph = 2;
inline constexpr std::uint32_t dmah_memory = 4;

/// This constant has the value of MLX5DV_REG_DMABUF_ACCESS_DATA_DIRECT in libmlx5.
inline constexpr int mlx5_data_direct = 1;

/// Pointers to the functions of newer versions of rdma-core. A pointer is null if the function was
/// not found.
struct VerbsExtensions {
    ibv_mr* (*reg_mr_ex)(ibv_pd* pd, MrInitAttr* attributes) = nullptr;
    ibv_dmah* (*alloc_dmah)(ibv_context* context, DmahInitAttr* attributes) = nullptr;
    int (*dealloc_dmah)(ibv_dmah* handle) = nullptr;
    /// Points to mlx5dv_reg_dmabuf_mr of libmlx5. libibverbs loads libmlx5, like its other
    /// providers, when it first finds an RDMA device.
    ibv_mr* (*mlx5_reg_dmabuf_mr)(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                  std::uint64_t iova, int fd, int access,
                                  int mlx5_access) = nullptr;
    /// Points to mlx5dv_get_data_direct_sysfs_path of libmlx5, which returns 0 or an errno value:
    /// ENODEV if the NIC has no data-direct PCI function.
    int (*mlx5_data_direct_path)(ibv_context* context, char* path, std::size_t size) = nullptr;

    [[nodiscard]] bool complete() const noexcept {
        return reg_mr_ex != nullptr && alloc_dmah != nullptr && dealloc_dmah != nullptr &&
               mlx5_reg_dmabuf_mr != nullptr && mlx5_data_direct_path != nullptr;
    }
};
/// Returns pointers to the functions of newer versions of rdma-core. If a function is missing,
/// later calls look up the function again after the process has loaded another shared object,
/// because libibverbs may load libmlx5 later.
[[nodiscard]] VerbsExtensions verbs_extensions();

/// Returns the function @p name of the program and its global libraries, or of a provider library
/// such as "libmlx5.so.1" that the process has loaded. Returns null if the function is not found.
[[nodiscard]] void* find_provider_function(const char* library, const char* name) noexcept;
[[nodiscard]] inline void* find_mlx5_function(const char* name) noexcept {
    return find_provider_function("libmlx5.so.1", name);
}

/// Returns Availability::yes() if the process has mlx5dv_reg_dmabuf_mr; otherwise
/// Availability::no() with the reason.
[[nodiscard]] Availability data_direct_function();
/// Returns Availability::yes() if the device is known to have a data-direct PCI function; otherwise
/// Availability::no() with the reason.
[[nodiscard]] Availability data_direct_of(const ibv_context* context);

} // namespace rdmabuf::detail
