// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>

/// The type of the buffer handle that ibv_alloc_buf(3) returns. <infiniband/verbs.h> declares this
/// type since rdma-core 64.
struct ibv_buf;

namespace rdmabuf {

/// The exporter "verbs_buf" exports buffers of ibv_alloc_buf(3), so that other devices can import
/// them. The provider of the protection domain decides how a buffer is allocated. Only a buffer
/// that is backed by a dma-buf can be exported: in rdma-core 65, a buffer of an mlx5 parent domain
/// with IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC in a confidential guest. For memory
/// of other protection domains, use ibv_reg_mr (MemoryRegion).
///
/// The exporter needs ibv_export_buf_dmabuf_fd of rdma-core 65, which is looked up at run time. It
/// has been tested only with simulated versions of ibv_alloc_buf() and ibv_export_buf_dmabuf_fd().
///
/// It is not part of Resolver::system(), because it belongs to one protection domain:
///
///     auto buffers = make_verbs_buf_exporter(pd);
///     resolver.add(buffers);
///     const Buffer buffer = buffers->allocate(65536);
class RDMABUF_EXPORT VerbsBufExporter : public Allocator {
  public:
    /// Adds a buffer that the program has allocated with ibv_alloc_buf() to the exporter, until the
    /// returned AddedRange is destroyed. The program keeps ownership of the buffer. Destroy the
    /// AddedRange before ibv_free_buf(), and invalidate registration caches as AddedRange
    /// describes.
    /// @param address  address that ibv_alloc_buf() returned for @p buffer
    /// @param size     size in bytes, as passed to ibv_alloc_buf()
    /// @throws Error
    ///   - EOPNOTSUPP: libibverbs has no ibv_export_buf_dmabuf_fd()
    ///   - ENODATA: the buffer is not backed by a dma-buf
    ///   - EINVAL: the buffer or the address is null, the size is 0, or the end of the buffer
    ///     overflows 64 bits
    ///   - ERANGE: the dma-buf is smaller than @p size
    ///   - EEXIST: the buffer overlaps a buffer that was added or allocated before
    ///   - EMFILE: the process has no free descriptors
    [[nodiscard]] virtual AddedRange add(ibv_buf* buffer, void* address, std::size_t size) = 0;
};

/// Returns a VerbsBufExporter for buffers of @p pd. allocate() of the exporter calls
/// ibv_alloc_buf(), and throws the errors of VerbsBufExporter::add() or an Error with the errno of
/// ibv_alloc_buf(). Each buffer keeps the protection domain alive.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<VerbsBufExporter> make_verbs_buf_exporter(
    ProtectionDomain pd);

} // namespace rdmabuf
