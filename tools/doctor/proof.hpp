// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../options.hpp"
#include "condition.hpp"
#include "devices.hpp"
#include "machine.hpp"

namespace rdmabuf::tools::doctor {

/// Memory that this process can allocate, or the reason why it cannot.
struct MemoryKindEntry {
    MemoryOptions options;
    /// The name in the output: "udmabuf", "cuda:1".
    std::string name;
    /// Empty if the memory can be allocated; otherwise the reason why it cannot.
    std::string missing = {};
    /// What to do if the memory cannot be allocated; may be empty.
    std::string remedy = {};
    /// True if a GPU or an accelerator holds the memory.
    bool on_gpu = false;
    /// The PCI address of the GPU that holds the memory; empty for other memory, and if the
    /// address is not known.
    std::string gpu = {};
    /// False for ordinary host memory. A proof with host memory shows that the NIC works, and not
    /// that a dma-buf or device memory can be used.
    bool counts = true;
};

/// Returns the kinds of memory for which proofs (test transfers) are made, and those that this
/// process cannot allocate (see MemoryKindEntry::missing). If Options::gpu is set, returns only
/// memory of GPUs. Initialises the driver of a GPU only if @p check selects a GPU of this driver,
/// or if sysfs lists no GPU and the device node of the driver exists.
[[nodiscard]] std::vector<MemoryKindEntry> find_memory(const Check& check, const Options& options);

/// The result of a proof (test transfers between memory and a NIC, in both directions).
struct Proof {
    std::string memory;
    std::string nic;
    bool counts = true;
    /// MemoryKindEntry::on_gpu and MemoryKindEntry::gpu.
    bool on_gpu = false;
    std::string gpu = {};
    /// The driver of a NIC that is software: "softverbs", "rxe", "siw"; empty for other NICs.
    std::string software = {};
    /// pass: all bytes arrived in both directions. fail: a call failed, or bytes differ.
    Verdict verdict = Verdict::unknown;
    /// True if the RDMA writes before the measurement of the bandwidth transferred the right bytes.
    bool wrote = false;
    /// True if all RDMA reads transferred the right bytes.
    bool read = false;
    /// How the memory was registered: "dmabuf", "dmabuf_data_direct", "peermem", "host", "dm".
    std::string path = {};
    /// The mapping of the dma-buf that was exported: "standard" or "pcie"; empty without a dma-buf.
    std::string mapping = {};
    /// The distance between GPU and NIC, such as "PIX"; empty if `gpu` is empty, or if sysfs does
    /// not describe the NIC.
    std::string distance = {};
    /// The bandwidth of RDMA writes in bytes per second.
    std::optional<double> bandwidth = std::nullopt;
    /// The bandwidth in bytes per second that the path permits: Nic::port_speed if `gpu` is empty,
    /// otherwise Path::bandwidth. Empty if not known, and for devices that are software.
    std::optional<double> link = std::nullopt;
    /// True if the driver of the GPU moved the memory to system memory when it was registered. Only
    /// amdgpu reports this.
    bool moved = false;
    /// The reason why the proof failed (a failed call or lost bytes) or was not made; empty after
    /// success.
    std::string text = {};
    std::string remedy = {};
    /// True if this process cannot allocate the memory, so that no NIC was used.
    bool no_memory = false;
};

/// Checks condition C-59: memory can be allocated and exported as a dma-buf. Uses no NIC.
[[nodiscard]] Finding prove_export(const MemoryKindEntry& memory);

/// Allocates memory and registers it on the device. Writes 1 byte, one byte less than a page, and
/// at most half of the memory to odd offsets by RDMA; only 1 byte if the memory is smaller than 8
/// pages. Compares all bytes of the memory without RDMA, and then reads the written bytes back by
/// RDMA. Then measures the bandwidth.
[[nodiscard]] Proof prove(const MemoryKindEntry& memory, const NicFiles& nic,
                          const Context& context, const Machine& machine);

} // namespace rdmabuf::tools::doctor
