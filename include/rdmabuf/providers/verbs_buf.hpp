// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>

/// The handle that ibv_alloc_buf(3) returns; <infiniband/verbs.h> declares it since rdma-core 64.
struct ibv_buf;

namespace rdmabuf {

/// "verbs_buf": buffers of ibv_alloc_buf(3) as dma-bufs, so that other devices can import them. The
/// provider of the protection domain decides what such a buffer is. Only a buffer that is backed by
/// a dma-buf can be exported: in rdma-core 65, that of an mlx5 parent domain with
/// IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC in a confidential guest. For memory of
/// other protection domains, use ibv_reg_mr (MemoryRegion).
///
/// Needs ibv_export_buf_dmabuf_fd of rdma-core 65, which is looked up at run time. Has been tested
/// with fakes of these functions only.
///
/// Not in Resolver::system(), because it belongs to one protection domain:
///
///     auto buffers = make_verbs_buf_exporter(pd);
///     resolver.add(buffers);
///     const Buffer buffer = buffers->allocate(65536);
class RDMABUF_EXPORT VerbsBufExporter : public Allocator {
  public:
    /// Makes a buffer known that the program has allocated with ibv_alloc_buf(), until the
    /// AddedRange is destroyed. The buffer remains the program's; destroy the AddedRange before
    /// ibv_free_buf().
    /// @param address  what ibv_alloc_buf() returned for @p buffer
    /// @param size     in bytes, as passed to ibv_alloc_buf()
    /// @throws Error
    ///   - EOPNOTSUPP: this libibverbs has no ibv_export_buf_dmabuf_fd()
    ///   - ENODATA: the buffer is not backed by a dma-buf
    ///   - EINVAL: a null handle or address, or a size of 0
    ///   - ERANGE: the dma-buf is smaller than @p size
    ///   - EEXIST: the buffer overlaps one that is known already
    ///   - EMFILE: the process has no more descriptors
    [[nodiscard]] virtual AddedRange add(ibv_buf* buffer, void* address, std::size_t size) = 0;
};

/// allocate() of this exporter allocates from @p pd with ibv_alloc_buf(), and throws an Error as
/// VerbsBufExporter::add() does, or with the errno of ibv_alloc_buf(). Buffers hold the protection
/// domain.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<VerbsBufExporter> make_verbs_buf_exporter(
    ProtectionDomain pd);

} // namespace rdmabuf
