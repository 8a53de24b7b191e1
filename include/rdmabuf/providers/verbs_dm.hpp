// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// "verbs_dm": memory on a NIC, exported as a dma-buf, so that other NICs can reach it: the one
/// that has it needs none (DeviceMemory). Needs rdma-core 62 (looked for at run time), Linux 7.0
/// with CONFIG_PCI_P2PDMA, and a provider that exports it, which in rdma-core 65 only mlx5 does.
/// Importers that pin memory cannot have it. availability() tries it, with a page.
/// ibv_dm_export_dmabuf_fd(3);
/// drivers/infiniband/core/uverbs_std_types_dmabuf.c.
///
/// - **Addresses.** NIC memory has none. Each buffer is given one in a reserved part of the address
///   space, where nothing else can be and where touching it is a fault: it is a name, as device
///   pointers are. Buffer::copy_in and copy_out reach the bytes, whatever their alignment; what
///   does not begin and end at a multiple of 4 is merged into words that are read before, so
///   nobody else should be writing to those.
/// - **Whole pages.** A NIC may put memory anywhere in a page, and libibverbs does not tell where.
///   So buffers are whole pages, and the NIC is asked to begin them at one. Where it refuses that
///   alignment they are taken to begin there all the same, as whole pages of mlx5 have to: it takes
///   them out of exactly as many. A dma-buf of any other size than the buffer's is refused.
/// - **Lifetime.** Freeing NIC memory revokes its dma-bufs. An ExportedRange keeps it; a region
///   made from one does not: keep the buffer for as long as its regions.
///
/// Not in Resolver::system(), as it is that of one device:
/// Resolver({make_verbs_dm_exporter(context)}).
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_verbs_dm_exporter(
    const Context& context);

} // namespace rdmabuf
