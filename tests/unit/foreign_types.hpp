// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// What include/rdmabuf/adapters.hpp fills: the types of the versions that have dma-bufs, as far as
/// it does, with the members that they have there. Debian 12 has older ones.
namespace rdmabuf::foreign {

/// struct fi_mr_dmabuf of libfabric 1.20 to 2.6, include/rdma/fi_domain.h.
struct FiMrDmaBuf {
    int fd;
    std::uint64_t offset;
    std::size_t len;
    void* base_addr;
};

/// uct_md_mem_reg_params_t of UCX 1.14 to 1.22, src/uct/api/v2/uct_v2.h; mem_type is in newer ones
/// only.
struct UctMemRegParams {
    std::uint64_t field_mask;
    std::uint64_t flags;
    int dmabuf_fd;
    std::size_t dmabuf_offset;
    int mem_type;
};
/// UCT_MD_MEM_REG_FIELD_*.
inline constexpr std::uint64_t uct_field_flags = 1;
inline constexpr std::uint64_t uct_field_dmabuf_fd = 2;
inline constexpr std::uint64_t uct_field_dmabuf_offset = 4;

/// ncclNet_v6_t to ncclNet_v12_t, src/include/plugin/net of NCCL.
struct NcclNet {
    // NOLINTNEXTLINE(readability-identifier-naming)
    int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset,
                       int fd, void** mhandle);
};
inline constexpr int nccl_ptr_cuda = 2;
inline constexpr int nccl_system_error = 2;

/// struct io_uring_zcrx_area_reg of Linux 6.15 and newer, include/uapi/linux/io_uring.h.
struct ZcrxAreaReg {
    std::uint64_t addr;
    std::uint64_t len;
    std::uint64_t rq_area_token;
    std::uint32_t flags;
    std::uint32_t dmabuf_fd;
    std::array<std::uint64_t, 2> reserved;
};
static_assert(sizeof(ZcrxAreaReg) == 48 && offsetof(ZcrxAreaReg, dmabuf_fd) == 28);

} // namespace rdmabuf::foreign
