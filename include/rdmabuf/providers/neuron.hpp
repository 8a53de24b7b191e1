// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct NeuronOptions {
    /// Index of the NeuronCore in whose memory allocate() allocates. Only the NeuronCores that
    /// NEURON_RT_VISIBLE_CORES makes visible to the process are counted, from 0.
    int core = 0;
};

/// Describes memory of a tensor that the program has allocated.
struct NeuronMemory {
    /// Address of the memory: the result of nrt_tensor_get_va(). A runtime without
    /// nrt_get_dmabuf_fd_v2() can export memory only from the start of an allocation. With such a
    /// runtime, only memory that begins there can be added.
    std::uintptr_t address = 0;
    /// Length in bytes.
    std::size_t length = 0;
    /// PCI address of the device, such as "0000:3b:00.0". May be empty, because the runtime does
    /// not report this address.
    std::string pci_address = {};
    /// Generation of the allocation. See ExternalMemory::generation.
    std::uint64_t generation = 0;
};

/// The exporter "neuron" exports the memory of AWS Trainium and Inferentia. It loads the Neuron
/// runtime (libnrt.so.1) at run time. It exports with nrt_get_dmabuf_fd_v2() if the runtime has
/// that function, otherwise with nrt_get_dmabuf_fd(). See nrt/nrt.h of aws-neuronx-runtime-lib and
/// src/hmem_neuron.c of libfabric.
///
/// - **Addresses.** The runtime reports neither which memory contains an address nor where an
///   allocation ends. The exporter finds only buffers of allocate() and memory that the program
///   adds:
///
///      const AddedRange range = neuron->add({.address = va, .length = nrt_tensor_get_size(t)});
///
/// - **Exports.** Each dma-buf can have only one region at a time: a second import fails with EPERM
///   (ndmabuf_attach() in neuron_dmabuf.c of the kernel module). Therefore export_range() calls the
///   runtime each time, and register_memory() exports for each region (Allocation::single_import).
///   find() does not call the runtime.
/// - **Initialisation.** availability() does not reserve a NeuronCore. allocate() calls nrt_init()
///   unless the program has called it. The library never calls nrt_close().
/// - **Lifetime.** An ExportedRange keeps the buffer of allocate() alive. A memory region does not,
///   and the kernel module frees memory that a NIC can still access: keep the memory until all its
///   regions are destroyed.
/// - **Kernel module.** When a region is destroyed, ndmabuf_detach() in neuron_dmabuf.c of
///   aws-neuron-driver 2.24.7 releases the number of the exported descriptor. The descriptor is
///   closed by then, so the number may belong to another file of the process. It is not known
///   whether later versions still do this. libfabric also closes the descriptor.
class RDMABUF_EXPORT NeuronExporter : public Allocator {
  public:
    /// Adds memory to the exporter, until the returned AddedRange is destroyed. Exports the memory
    /// once, to check that it can be exported. Destroy the AddedRange before the tensor is freed,
    /// and invalidate registration caches as AddedRange describes.
    /// @throws Error
    ///   - EINVAL: the length or the address is 0, or the end of the memory overflows 64 bits; the
    ///     runtime does not know the address, or cannot export it without nrt_get_dmabuf_fd_v2()
    ///   - EEXIST: the memory overlaps memory that was added or allocated before
    ///   - ERANGE: the dma-buf is shorter than the memory
    ///   - ENOENT: libnrt.so.1 cannot be loaded
    ///   - ENOSYS: libnrt.so.1 is too old
    ///   - ENOMEM, ENODEV, ETIMEDOUT, EIO: the runtime failed; the error text contains the
    ///     NRT_STATUS
    ///   - EIO: the runtime returned no descriptor, or an impossible offset
    [[nodiscard]] virtual AddedRange add(const NeuronMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<NeuronExporter> make_neuron_exporter(
    const NeuronOptions& options = {});

} // namespace rdmabuf
