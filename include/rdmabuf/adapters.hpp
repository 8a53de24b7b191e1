// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include <rdmabuf/exported_range.hpp>

/// Converts between DmaBufRange and the registration arguments of libfabric, UCX and NCCL. A
/// program can export memory with rdmabuf and register the memory with one of these libraries. The
/// range_of_ functions convert the arguments of a library to a DmaBufRange. The headers of these
/// libraries are not needed, because the functions are templates: they accept any type with members
/// of the same names.
///
/// The registration calls of those libraries borrow the descriptor and do not close it. Keep the
/// ExportedRange until the registration call has returned. After this call the program may destroy
/// the ExportedRange, because the kernel holds a reference to a registered dma-buf. Only the
/// ExportedRange may release the descriptor: the program must not close the descriptor.
///
/// The iova is the address of the memory if the range has one (DmaBufRange::address). The address
/// must have the same page offset as DmaBufRange::offset, which is true for all ranges of Resolver
/// and Exporter. The fill_, add_ and range_of_ functions call no driver, allocate no memory and
/// cannot fail.
namespace rdmabuf::adapters {

/// Fills libfabric's struct fi_mr_dmabuf (include/rdma/fi_domain.h, libfabric 1.20 or newer):
///
///     fi_mr_dmabuf dmabuf;
///     fill_fi_mr_dmabuf(exported, dmabuf);
///     attr.dmabuf = &dmabuf;
///     attr.iov_count = 1;
///     attr.iface = FI_HMEM_CUDA;
///     fi_mr_regattr(domain, &attr, FI_MR_DMABUF, &mr);
///
/// libfabric registers @p out.base_addr + @p out.offset as the iova (vrb_mr_reg_common in
/// prov/verbs/src/verbs_mr.c, efa_mr_reg_ibv_mr in prov/efa/src/efa_mr.c). So base_addr is the
/// address of the first byte of the dma-buf in the exporter's address space. If the range has no
/// address, base_addr is null and the iova is the offset. Neither offset nor length needs to be a
/// multiple of the page size.
///
/// fi_mr_regattr() accepts FI_MR_DMABUF if the domain was opened with FI_HMEM, the program
/// requested API version 1.20 or newer, attr.offset is 0 and attr.base_mr is null (fi_mr(3)).
/// Errors of fi_mr_regattr():
/// - -FI_EBADFLAGS: the program requested an older API version (efa)
/// - -FI_ENOSYS: libfabric has not initialised the iface, or libibverbs has no ibv_reg_dmabuf_mr
///
/// The cxi provider ignores the descriptor: it uses the address and exports the memory again
/// (prov/cxi/src/cxip_iomm.c). So cxi registers only memory that libfabric can export.
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

/// Converts libfabric's struct fi_mr_dmabuf to a DmaBufRange, which DmaBufMR can register. The
/// result does not own the file descriptor of the dma-buf.
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

/// The bits UCT_MD_MEM_REG_FIELD_DMABUF_FD and UCT_MD_MEM_REG_FIELD_DMABUF_OFFSET of
/// uct_md_mem_reg_params_t::field_mask. They mark the dma-buf fields of the structure as valid.
inline constexpr std::uint64_t uct_mem_reg_fields_dmabuf = 2U | 4U;

/// Adds a dma-buf to UCX's uct_md_mem_reg_params_t (src/uct/api/v2/uct_v2.h, UCX 1.14 or newer).
/// The caller sets field_mask and the other fields before this call:
///
///     uct_md_mem_reg_params_t params = {.field_mask = UCT_MD_MEM_REG_FIELD_FLAGS, .flags = ...};
///     add_to_uct_mem_reg_params(exported, params);
///     uct_md_mem_reg_v2(md, reinterpret_cast<void*>(exported.address()), exported.length(),
///                       &params, &memh);
///
/// UCT uses the address argument of uct_md_mem_reg_v2() as the iova (uct_ib_reg_mr in
/// src/uct/ib/base/ib_md.c), so the range must have an address. With mlx5 data direct, UCT
/// registers the dma-buf from its first byte to the end of the range, with the iova that belongs to
/// the first byte (uct_ib_mlx5_direct_nic_reg_mr). Neither offset nor length needs to be a multiple
/// of the page size. UCT does not close the descriptor; ucp_mm.c closes only descriptors that it
/// has exported.
///
/// Only memory domains with UCT_MD_FLAG_REG_DMABUF accept a dma-buf. UCX sets this flag if a test
/// registration with all remote access flags succeeds. The efa driver rejects remote atomics, so
/// the flag is not set on efa.
///
/// UCX does not install uct_v2.h (src/uct/Makefile.am), so this function is for programs that are
/// built with the sources of UCX. The public ucp_mem_map() accepts no dma-buf (up to UCX 1.22): it
/// exports the memory at the given address again.
template <class UctMemRegParams>
requires requires(UctMemRegParams& out) {
    out.field_mask, out.dmabuf_fd, out.dmabuf_offset;
}
void add_to_uct_mem_reg_params(const DmaBufRange& range, UctMemRegParams& out) noexcept {
    out.field_mask |= uct_mem_reg_fields_dmabuf;
    out.dmabuf_fd = range.fd;
    out.dmabuf_offset = static_cast<std::size_t>(range.offset);
}

/// Converts the arguments of uct_md_mem_reg_v2() to a DmaBufRange, which DmaBufMR can register. The
/// result does not own the descriptor. DmaBufRange::fd is -1 if @p in contains no descriptor.
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

/// The arguments that describe a dma-buf in a call of regMrDmaBuf() of an NCCL network plugin, in
/// the order of its parameters. Size and offset are in bytes. The structure does not own the
/// descriptor.
struct NcclDmaBuf {
    void* data = nullptr;
    std::size_t size = 0;
    std::uint64_t offset = 0;
    int fd = -1;
};

/// Converts a range for regMrDmaBuf(), extended downwards to the beginning of its first page. The
/// extension is necessary because NCCL's own plugin rounds data down and size up to whole pages,
/// but does not change the offset (ncclIbRegMrDmaBufInternal2 in src/transport/net_ib/reg.cc). NCCL
/// itself passes only memory that begins at a page boundary, with offset 0
/// (src/transport/net.cc). The range must have an address. isend and irecv still take the address
/// of the memory, not NcclDmaBuf::data.
[[nodiscard]] inline NcclDmaBuf nccl_dmabuf(const DmaBufRange& range) noexcept {
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const std::uintptr_t in_page = range.address % page;
    return {.data = reinterpret_cast<void*>(range.address - in_page),
            .size = range.length + in_page,
            .offset = range.offset - in_page,
            .fd = range.fd};
}

/// Converts the arguments that NCCL passes to regMrDmaBuf() to a DmaBufRange, which DmaBufMR can
/// register. The result does not own the descriptor: NCCL closes the descriptor after regMrDmaBuf()
/// returns.
[[nodiscard]] inline DmaBufRange range_of_nccl(const NcclDmaBuf& in) noexcept {
    return {.fd = in.fd,
            .offset = in.offset,
            .length = in.size,
            .address = reinterpret_cast<std::uintptr_t>(in.data)};
}

/// Registers the range with an NCCL network plugin. The structures ncclNet_v6_t to ncclNet_v12_t
/// and ncclCollNet_v6_t to ncclCollNet_v12_t have the same regMrDmaBuf() (plugins/net/README.md).
/// @param net      the plugin. Its regMrDmaBuf must not be null: it is set if getProperties()
///                 reports NCCL_PTR_DMABUF in ptrSupport
/// @param comm     a send or receive communicator of the plugin
/// @param type     NCCL_PTR_CUDA; plugins may reject dma-bufs with NCCL_PTR_HOST
/// @param mhandle  is set to the handle of the registration, which the caller passes to deregMr()
/// @return the result of the plugin, ncclSuccess (0) on success. NCCL's own plugin caches
///         registrations by address and returns an older registration for memory inside it:
///         deregister before the memory is freed.
template <class NcclNet>
auto nccl_reg_mr(const NcclNet& net, void* comm, const DmaBufRange& range, int type,
                 void** mhandle) noexcept {
    const NcclDmaBuf dmabuf = nccl_dmabuf(range);
    return net.regMrDmaBuf(comm, dmabuf.data, dmabuf.size, type, dmabuf.offset, dmabuf.fd, mhandle);
}

} // namespace rdmabuf::adapters
