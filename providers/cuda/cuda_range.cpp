// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_range.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/exported_memory.hpp"

namespace rdmabuf::detail::cuda {
namespace {

constexpr const char* export_call = "cuMemGetHandleForAddressRange";

/// Checks that the range is inside one allocation or, for mapped memory (cuMemMap), inside mappings
/// that follow each other without a gap in one reserved range.
/// @return the number of these mappings; 1 for an allocation
/// @throws Error ERANGE if the range is not inside them; the errors of mappings_of()
std::size_t check_range(const Driver& driver, const Pointer& pointer, std::size_t length) {
    const Mappings mappings = mappings_of(driver, pointer, length, &extent_of);
    if (!mappings.extent.holds(pointer.address, length)) {
        throw leaves(mappings.extent, pointer.address, length,
                     pointer.mapped() ? ", and no device memory is mapped after it" : "");
    }
    return mappings.count;
}

/// Makes cuMemcpy wait until its copy is complete. Without this setting, cuMemcpy can return early,
/// and its copy could overlap with a later RDMA access. The setting remains until the allocation is
/// freed. If the driver refuses the setting for this memory, the program must synchronise its
/// copies.
void synchronise_copies(const Driver& driver, const Pointer& pointer) noexcept {
    if (pointer.type != MemoryType::device || pointer.mapped()) {
        return;
    }
    unsigned value = 0;
    const Functions& functions = driver.functions();
    if (functions.pointer_get_attribute(&value, PointerAttribute::sync_memops, pointer.address) ==
            success &&
        value != 0) {
        return;
    }
    value = 1;
    (void)functions.pointer_set_attribute(&value, PointerAttribute::sync_memops, pointer.address);
}

/// Throws the error for a refused export, with the requested range and a possible cause.
[[noreturn]] void raise_refused(const Driver& driver, const Pointer& pointer, Result result,
                                const Extent& pages, std::size_t mappings) {
    std::string hint = std::to_string(pages.length) + " bytes at " + hexadecimal(pages.base) +
                       " of " + driver.pci_address(pointer.device) + " were requested";
    unsigned capable = 1;
    const bool told =
        driver.functions().pointer_get_attribute(
            &capable, PointerAttribute::is_gpu_direct_rdma_capable, pointer.address) == success;
    if (told && capable == 0) {
        throw Error(
            EOPNOTSUPP, export_call,
            driver.name_of(result) + ": " + hint +
                (pointer.pooled
                     ? "; the memory is from a memory pool (cuMemAllocAsync), which this driver "
                       "does not export: allocate with cuMemAlloc, or cuMemCreate and cuMemMap"
                     : "; the memory was not allocated for RDMA: set "
                       "allocFlags.gpuDirectRDMACapable for cuMemCreate, or use cuMemAlloc"));
    }
    if (result == operating_system) {
        hint +=
            "; the kernel returned no descriptor: check the limit of open files (ulimit -n), and "
            "the kernel log (dmesg)";
    }
    if (mappings > 1) {
        hint += "; the range spans " + std::to_string(mappings) +
                " mappings, which must be on one device and have the same properties";
    }
    driver.raise(result, export_call, hint);
}

/// Checks that the dma-buf that the driver returned is not shorter than the requested pages.
void check_size(const UniqueFd& fd, const Extent& pages) {
    const std::uint64_t size = known_dmabuf_size(fd.get());
    if (size < pages.length) {
        throw Error(ERANGE, export_call,
                    "the driver's dma-buf has " + std::to_string(size) + " bytes instead of the " +
                        std::to_string(pages.length) + " bytes requested at " +
                        hexadecimal(pages.base) +
                        ": the memory that is mapped at this address ends earlier");
    }
}

} // namespace

std::optional<ErrorInfo> check_device(const Driver& driver, Device device) {
    if (driver.attribute(DeviceAttribute::dma_buf_supported, device) != 0) {
        return std::nullopt;
    }
    const std::string which = "device " + std::to_string(device) + " (" +
                              driver.pci_address(device) + ") does not export dma-bufs";
    constexpr const char* attribute = "cuDeviceGetAttribute(DMA_BUF_SUPPORTED)";
    if (driver.attribute(DeviceAttribute::integrated, device) != 0) {
        return ErrorInfo{EOPNOTSUPP, attribute,
                         which + ": it is integrated, and uses the memory of the host",
                         "allocate with cuMemHostAlloc and register as host "
                         "memory, by ibv_reg_mr()"};
    }
    const bool peer = driver.attribute(DeviceAttribute::gpu_direct_rdma_supported, device) != 0;
    return ErrorInfo{EOPNOTSUPP, attribute, which,
                     std::string("use the open kernel modules of the NVIDIA "
                                 "driver (not the proprietary ones), on "
                                 "Linux 5.12 or newer, without confidential "
                                 "computing") +
                         (peer ? "; with nvidia_peermem loaded, the address "
                                 "can be registered by ibv_reg_mr()"
                               : "")};
}

void check_exportable(const Driver& driver, const Pointer& pointer) {
    const std::string what = "the memory at " + hexadecimal(pointer.address) + " is ";
    if (pointer.managed) {
        throw Error(EOPNOTSUPP, export_call,
                    what +
                        "managed (cuMemAllocManaged), and migrates between host and device, so it "
                        "cannot be exported: allocate with cuMemAlloc");
    }
    if (pointer.type == MemoryType::host) {
        if (driver.attribute(DeviceAttribute::host_alloc_dma_buf_supported, pointer.device) == 0) {
            throw Error(EOPNOTSUPP, export_call,
                        what +
                            "host memory, which this driver does not export: register it as host "
                            "memory, by ibv_reg_mr()");
        }
    } else if (const auto error = check_device(driver, pointer.device)) {
        error->raise();
    }
}

Handle export_pages(const Driver& driver, const Pointer& pointer, std::size_t length,
                    MappingKind mapping) {
    const std::size_t mappings = check_range(driver, pointer, length);
    synchronise_copies(driver, pointer);

    const std::uint64_t offset = pointer.address % page_size();
    const Extent pages{.base = pointer.address - offset,
                       .length = round_up_to_pages(offset + length)};
    // The driver writes the descriptor into an int. take_descriptor() below then takes ownership of
    // the descriptor.
    int raw = -1;
    const auto get = [&](unsigned long long flags) {
        return driver.functions().mem_get_handle_for_address_range(&raw, pages.base, pages.length,
                                                                   dma_buf_fd, flags);
    };
    Result got = get(mapping == MappingKind::pcie ? mapping_type_pcie : 0);
    if (mapping == MappingKind::pcie && (got == not_supported || got == invalid_value)) {
        // Export with the standard mapping instead. Drivers before CUDA 12.8 do not support the
        // flag for MappingKind::pcie. Platforms on which all paths to the memory use the BAR refuse
        // the flag; the standard mapping is equivalent on these platforms.
        mapping = MappingKind::standard;
        got = get(0);
    }
    if (got != success) {
        raise_refused(driver, pointer, got, pages, mappings);
    }
    UniqueFd fd = take_descriptor(raw, export_call);
    check_size(fd, pages);
    return {.fd = std::move(fd), .offset = offset, .mapping = mapping};
}

} // namespace rdmabuf::detail::cuda
