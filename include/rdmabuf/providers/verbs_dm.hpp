// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Returns the exporter "verbs_dm", which allocates memory on the NIC of @p context and exports it
/// as dma-bufs for other NICs. The NIC itself needs no dma-buf for its own memory (DeviceMemory).
/// The exporter needs ibv_dm_export_dmabuf_fd() of rdma-core 62, which is looked up at run time,
/// Linux 7.0 with CONFIG_PCI_P2PDMA, and an rdma-core provider that supports the export: mlx5 only,
/// in rdma-core 65. Importers that pin memory cannot use these dma-bufs. availability() exports one
/// page to find out whether the export works. See ibv_dm_export_dmabuf_fd(3) and
/// drivers/infiniband/core/uverbs_std_types_dmabuf.c.
///
/// - **Addresses.** NIC memory has no address. Each buffer gets a reserved range of the process's
///   addresses. The range only identifies the buffer, as a device pointer does: the CPU cannot
///   access the range. Buffer::copy_in and copy_out access the bytes, with any alignment. If the
///   copied range does not begin and end at a multiple of 4 bytes, copy_in reads, merges and writes
///   the words at its ends, so other writers must not change these words at the same time.
/// - **Whole pages.** A NIC can place its memory at any offset in a page, which libibverbs does not
///   report. Buffers are therefore whole pages, and the exporter requests page alignment. If the
///   NIC refuses that alignment, the exporter assumes that whole pages begin at a page boundary, as
///   they do on mlx5. A dma-buf whose size differs from that of the buffer is refused with ENOTSUP.
/// - **Lifetime.** Freeing NIC memory revokes its dma-bufs. An ExportedRange keeps the memory
///   alive. A memory region does not: keep the buffer until all its regions are destroyed.
///
/// The exporter is not part of Resolver::system(), because it belongs to one device:
/// Resolver({make_verbs_dm_exporter(context)}).
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_verbs_dm_exporter(
    const Context& context);

} // namespace rdmabuf
