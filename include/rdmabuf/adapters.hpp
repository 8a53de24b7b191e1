// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/exported_range.hpp>

/// What other projects' registrations take, filled from a range that was exported here, for
/// programs that leave registering to them; and the range_of_ functions, which return the range
/// that such arguments describe. None of their headers is needed: the functions are
/// templates over their types, or over anything with members of the same names.
///
/// All of these calls borrow the descriptor. The ExportedRange has to live until the call has
/// returned, and may go then: the kernel holds the dma-buf for as long as it is registered. None
/// of them closes it, and the program must not either, for it is the range's to give back.
///
/// The iova is the memory's own address wherever a range knows it (DmaBufRange::address), and has
/// to lie in its page where the offset does, as all of Resolver and Exporter do. Nothing here
/// calls into a driver, allocates or fails.
namespace rdmabuf::adapters {

/// Fills libfabric's struct fi_mr_dmabuf, which is there since 1.20 (include/rdma/fi_domain.h):
///
///     fi_mr_dmabuf dmabuf;
///     fill_fi_mr_dmabuf(exported, dmabuf);
///     attr.dmabuf = &dmabuf;
///     attr.iov_count = 1;
///     attr.iface = FI_HMEM_CUDA;
///     fi_mr_regattr(domain, &attr, FI_MR_DMABUF, &mr);
///
/// libfabric registers @p out.base_addr + @p out.offset as the iova (vrb_mr_reg_common in
/// prov/verbs/src/verbs_mr.c, efa_mr_reg_ibv_mr in prov/efa/src/efa_mr.c), so base_addr is where
/// the dma-buf begins in the exporter's addresses; null where the range has no address, and then
/// the iova is the offset. Neither offset nor length needs to be a multiple of the page size.
///
/// It takes FI_MR_DMABUF in a domain opened with FI_HMEM by a program that asked for API version
/// 1.20 or newer, with attr.offset 0 and attr.base_mr null (fi_mr(3)); efa answers -FI_EBADFLAGS
/// to older ones. An iface whose support libfabric has not initialised is -FI_ENOSYS, and so is
/// verbs without ibv_reg_dmabuf_mr. cxi uses the address alone and exports it once more itself
/// (prov/cxi/src/cxip_iomm.c): what libfabric has no exporter for it cannot register.
template <class FiMrDmaBuf>
requires requires(FiMrDmaBuf& out) {
    out.fd, out.offset, out.len, out.base_addr;
}
void fill_fi_mr_dmabuf(const DmaBufRange& range, FiMrDmaBuf& out) noexcept {
    out.fd = range.fd;
    out.offset = range.offset;
    out.len = range.length;
    out.base_addr =
        range.address == 0
            ? nullptr
            : reinterpret_cast<void*>(range.address - static_cast<std::uintptr_t>(range.offset));
}

/// Returns the range that a struct fi_mr_dmabuf describes, for programs and libfabric providers
/// that register it here (DmaBufMR). The descriptor remains the owner's.
template <class FiMrDmaBuf>
requires requires(const FiMrDmaBuf& in) {
    in.fd, in.offset, in.len, in.base_addr;
}
[[nodiscard]] DmaBufRange range_of_fi_mr_dmabuf(const FiMrDmaBuf& in) noexcept {
    const auto base = reinterpret_cast<std::uintptr_t>(in.base_addr);
    return {.fd = in.fd,
            .offset = in.offset,
            .length = in.len,
            .address = base == 0 ? 0 : base + static_cast<std::uintptr_t>(in.offset)};
}

/// UCT_MD_MEM_REG_FIELD_DMABUF_FD and UCT_MD_MEM_REG_FIELD_DMABUF_OFFSET.
inline constexpr std::uint64_t uct_mem_reg_fields_dmabuf = 2U | 4U;

/// Adds the dma-buf to UCX's uct_md_mem_reg_params_t, where it is since 1.14
/// (src/uct/api/v2/uct_v2.h); the other fields, field_mask among them, are the caller's to set
/// before:
///
///     uct_md_mem_reg_params_t params = {.field_mask = UCT_MD_MEM_REG_FIELD_FLAGS, .flags = ...};
///     add_to_uct_mem_reg_params(exported, params);
///     uct_md_mem_reg_v2(md, reinterpret_cast<void*>(exported.address()), exported.length(),
///                       &params, &memh);
///
/// The address of the call is the iova (uct_ib_reg_mr in src/uct/ib/base/ib_md.c), so the range
/// has to know its own. With mlx5 data direct the whole dma-buf up to the range's end is
/// registered, from its first byte on, with the iova that belongs to that byte
/// (uct_ib_mlx5_direct_nic_reg_mr). Neither offset nor length needs to be a multiple of the page
/// size. UCT does not close the descriptor; ucp_mm.c closes those that it exported itself.
///
/// Only memory domains with UCT_MD_FLAG_REG_DMABUF take it; which ones have that is found by a
/// probe with all remote access, which efa's driver fails for its atomics. UCX does not install
/// that header (src/uct/Makefile.am): this is for programs built with UCX's sources. Its public
/// ucp_mem_map() takes no dma-buf, up to 1.22: it exports the address once more itself.
template <class UctMemRegParams>
requires requires(UctMemRegParams& out) {
    out.field_mask, out.dmabuf_fd, out.dmabuf_offset;
}
void add_to_uct_mem_reg_params(const DmaBufRange& range, UctMemRegParams& out) noexcept {
    out.field_mask |= uct_mem_reg_fields_dmabuf;
    out.dmabuf_fd = range.fd;
    out.dmabuf_offset = static_cast<std::size_t>(range.offset);
}

/// Returns the range that uct_md_mem_reg_v2() registers for these arguments, for UCT components
/// that register it here (DmaBufMR). The descriptor is -1 if the parameters have none, and remains
/// UCP's.
template <class UctMemRegParams>
requires requires(const UctMemRegParams& in) {
    in.field_mask, in.dmabuf_fd, in.dmabuf_offset;
}
[[nodiscard]] DmaBufRange range_of_uct_mem_reg(const void* address, std::size_t length,
                                               const UctMemRegParams& in) noexcept {
    constexpr std::uint64_t fd_field = 2;
    constexpr std::uint64_t offset_field = 4;
    return {.fd = (in.field_mask & fd_field) != 0 ? in.dmabuf_fd : -1,
            .offset = (in.field_mask & offset_field) != 0 ? in.dmabuf_offset : 0,
            .length = length,
            .address = reinterpret_cast<std::uintptr_t>(address)};
}

/// What regMrDmaBuf of an NCCL network plugin takes of a range, in its order.
struct NcclDmaBuf {
    void* data = nullptr;
    std::size_t size = 0;
    std::uint64_t offset = 0;
    int fd = -1;
};

/// The range, widened to the begin of its first page: NCCL's own plugin rounds data down to that
/// and size up, and takes the offset as it is (ncclIbRegMrDmaBufInternal2 in
/// src/transport/net_ib/reg.cc), and NCCL calls plugins with memory that begins a page, at offset
/// 0 (src/transport/net.cc). The range has to know its address. What isend and irecv are given
/// stays the memory's own address.
[[nodiscard]] inline NcclDmaBuf nccl_dmabuf(const DmaBufRange& range) noexcept {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t in_page = range.address % page;
    return {.data = reinterpret_cast<void*>(range.address - in_page),
            .size = range.length + in_page,
            .offset = range.offset - in_page,
            .fd = range.fd};
}

/// Returns the range that NCCL passes to regMrDmaBuf, for network plugins that register it here
/// (DmaBufMR). The descriptor remains NCCL's, which closes it when regMrDmaBuf has returned.
[[nodiscard]] inline DmaBufRange range_of_nccl(const NcclDmaBuf& in) noexcept {
    return {.fd = in.fd,
            .offset = in.offset,
            .length = in.size,
            .address = reinterpret_cast<std::uintptr_t>(in.data)};
}

/// Registers the range with an NCCL network plugin: ncclNet_v6_t to ncclNet_v12_t, and
/// ncclCollNet_v6_t to ncclCollNet_v12_t, have the same regMrDmaBuf (plugins/net/README.md).
/// @param net   whose regMrDmaBuf is not null: a plugin has it where the ptrSupport of its
///              getProperties has NCCL_PTR_DMABUF
/// @param comm  a send or a receive communicator of it
/// @param type  NCCL_PTR_CUDA; plugins may refuse dma-bufs as NCCL_PTR_HOST
/// @return what the plugin says: ncclSuccess (0), with @p mhandle set, for its deregMr. NCCL's
///         own plugin knows registrations by address and gives an older one out for memory inside
///         it: deregister before the memory is freed.
template <class NcclNet>
auto nccl_reg_mr(const NcclNet& net, void* comm, const DmaBufRange& range, int type,
                 void** mhandle) noexcept {
    const NcclDmaBuf dmabuf = nccl_dmabuf(range);
    return net.regMrDmaBuf(comm, dmabuf.data, dmabuf.size, type, dmabuf.offset, dmabuf.fd, mhandle);
}

} // namespace rdmabuf::adapters
