// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rdmabuf/added_range.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct NeuronOptions {
    /// The NeuronCore whose memory allocate() takes, counted as NEURON_RT_VISIBLE_CORES leaves
    /// them.
    int core = 0;
};

/// Memory of a tensor that the program made itself.
struct NeuronMemory {
    /// What nrt_tensor_get_va() says. Runtimes without nrt_get_dmabuf_fd_v2() export only from the
    /// first address of an allocation on: no slices of it then.
    std::uintptr_t address = 0;
    /// In bytes.
    std::size_t length = 0;
    /// "0000:3b:00.0" of the device, which the runtime does not tell; may be empty.
    std::string pci_address = {};
    /// As ExternalMemory::generation.
    std::uint64_t generation = 0;
};

/// "neuron": memory of AWS Trainium and Inferentia, through the runtime's libnrt.so.1, which is
/// loaded at run time. nrt_get_dmabuf_fd() and, where it is, nrt_get_dmabuf_fd_v2(); nrt/nrt.h of
/// aws-neuronx-runtime-lib, src/hmem_neuron.c of libfabric.
///
/// - **Addresses.** The runtime does not tell whose an address is, nor where its allocation ends.
///   So this knows what it has made, and what the program adds:
///
///       const AddedRange range = neuron->add({.address = va, .length = nrt_tensor_get_size(t)});
///
/// - **Exports.** An allocation is exported once, whole, when it is made or added; find() and
///   export_range() ask the runtime nothing.
/// - **Initialising.** availability() takes no NeuronCore. allocate() calls nrt_init(), unless the
///   program has, and nothing here calls nrt_close().
/// - **Lifetime.** An ExportedRange keeps a buffer of allocate(). A region made from one does not,
///   and the kernel module lets memory go that a NIC still reaches: keep the memory for as long as
///   its regions.
/// - **Kernel module.** aws-neuronx-dkms up to 2.27 closes the descriptor a second time when a
///   region ends (ndmabuf_detach of neuron_dmabuf.c), and is therefore refused.
class RDMABUF_EXPORT NeuronExporter : public Allocator {
  public:
    /// Makes memory known until the AddedRange is gone, and exports it. Remove it before the tensor
    /// is freed.
    /// @throws Error
    ///   - EINVAL: a length or an address of 0, or ones that overflow; an address that the runtime
    ///     does not know, or cannot export without nrt_get_dmabuf_fd_v2()
    ///   - EEXIST: it overlaps memory that is known already
    ///   - ERANGE: the dma-buf is shorter than the memory
    ///   - EOPNOTSUPP, ENOENT, ENOSYS: as availability() tells; or what the runtime says
    [[nodiscard]] virtual AddedRange add(const NeuronMemory& memory) = 0;
};

[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<NeuronExporter> make_neuron_exporter(
    const NeuronOptions& options = {});

} // namespace rdmabuf
