// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_export.hpp"

#include <fcntl.h>

#include <cerrno>
#include <string>
#include <utility>
#include <variant>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/exported_memory.hpp"

namespace rdmabuf::detail::level_zero {
namespace {

constexpr const char* export_call = "zeMemGetAllocProperties(EXTERNAL_MEMORY_EXPORT_FD)";
constexpr const char* descriptor_remedy =
    "allocate it for export: zeMemAllocDevice with a ze_external_memory_export_desc_t of "
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF in pNext";

/// Returns true if the result means that the memory cannot be exported. Drivers may refuse memory
/// that was allocated without a ze_external_memory_export_desc_t. Intel's driver returns
/// out_of_host_memory whenever the kernel exports no dma-buf.
bool cannot_export(Result result) noexcept {
    return result == out_of_host_memory || result == unsupported_feature ||
           result == unsupported_enumeration || result == invalid_enumeration ||
           result == invalid_argument;
}

/// Exports the memory. @return a duplicate of the driver's descriptor. The driver's own descriptor
/// must not be closed, because the driver returns it to later callers, too
UniqueFd dmabuf_of(const Driver& driver, const Pointer& pointer) {
    ExportFd exported;
    AllocationProperties properties;
    properties.next = &exported;
    Device device = nullptr;
    const Result asked = driver.functions().mem_get_alloc_properties(
        pointer.context, reinterpret_cast<const void*>(pointer.address), &properties, &device);
    const std::string what =
        "the memory at " + hexadecimal(pointer.address) + " is not exported as a dma-buf";
    if (cannot_export(asked) || (asked == success && exported.fd < 0)) {
        const std::string why = asked == success ? "no descriptor" : Driver::name_of(asked);
        const bool host =
            pointer.type == MemoryType::host || pointer.type == MemoryType::host_imported;
        throw Error(EOPNOTSUPP, export_call,
                    why + ": " + what + "; " +
                        (host ? "register it as host memory, by ibv_reg_mr()" : descriptor_remedy) +
                        (asked == out_of_host_memory
                             ? "; if it is, check the limit of open files (ulimit -n)"
                             : ""));
    }
    Driver::check(asked, export_call, what);
    UniqueFd own(::fcntl(exported.fd, F_DUPFD_CLOEXEC, 0));
    if (!own) {
        throw Error(
            errno, "fcntl(F_DUPFD_CLOEXEC)",
            std::string(export_call) +
                " returned a descriptor that cannot be duplicated: " + std::to_string(exported.fd));
    }
    return own;
}

/// Checks that the allocation begins where its dma-buf begins. The dma-buf of a pool contains many
/// allocations, and no function returns the offset of an allocation in the pool. All addresses of a
/// pool have the same id. If the byte before the allocation has this id, too, the allocation is not
/// the first in its pool. The size of the dma-buf cannot be compared instead, because a driver may
/// round it up, or reuse a larger buffer object.
void check_begins(const Driver& driver, const Pointer& pointer, const Extent& extent) {
    const auto before = query(driver, pointer.context, extent.base - 1);
    const std::string what =
        std::to_string(extent.length) + " bytes at " + hexadecimal(extent.base);
    if (const auto* const failed = std::get_if<Result>(&before)) {
        Driver::raise(*failed, "zeMemGetAllocProperties",
                      "the memory before the " + what + " cannot be queried");
    }
    const auto& neighbour = std::get<Pointer>(before);
    if (neighbour.type != MemoryType::unknown && neighbour.id == pointer.id) {
        throw Error(EOPNOTSUPP, export_call,
                    "the " + what +
                        " are a part of a pool, and the driver does not report their offset in "
                        "the pool; " +
                        descriptor_remedy);
    }
}

/// Checks that the dma-buf contains the allocation. For memory that is mapped with zeVirtualMemMap,
/// the dma-buf is the whole physical memory. With Intel's driver since 2026, such a mapping can
/// begin at any offset in the physical memory, and no function returns this offset. Therefore
/// throws an Error unless the dma-buf has the size of the mapping: then the offset is 0.
void check_size(const Driver& driver, const Pointer& pointer, const UniqueFd& fd,
                const Extent& extent) {
    const std::uint64_t size = known_dmabuf_size(fd.get());
    if (size < extent.length) {
        throw Error(
            ERANGE, export_call,
            "the driver's dma-buf has " + std::to_string(size) + " bytes, and the allocation at " +
                hexadecimal(extent.base) + " has " + std::to_string(extent.length) +
                ": the allocation is spread over several dma-bufs, as on a GPU with several tiles; "
                "allocate on one tile (a sub-device, or ZE_FLAT_DEVICE_HIERARCHY=FLAT)");
    }
    if (size != extent.length && is_mapped(driver, pointer)) {
        throw Error(EOPNOTSUPP, export_call,
                    "the " + std::to_string(extent.length) + " bytes at " +
                        hexadecimal(extent.base) +
                        " are mapped by zeVirtualMemMap, and the driver does not report their "
                        "offset in the physical memory of " +
                        std::to_string(size) + " bytes; map the whole physical memory, or " +
                        descriptor_remedy);
    }
}

} // namespace

std::optional<ErrorInfo> check_device(const Driver& driver, Device device) {
    if (driver.exports_dmabufs(device)) {
        return std::nullopt;
    }
    return ErrorInfo{
        EOPNOTSUPP, "zeDeviceGetExternalMemoryProperties",
        "the GPU " + driver.pci_address(device) + " does not export its memory as dma-bufs",
        "use a newer driver of the GPU, or host memory"};
}

void check_exportable(const Driver& driver, const Pointer& pointer) {
    if (pointer.type == MemoryType::shared) {
        throw Error(
            EOPNOTSUPP, export_call,
            "the memory at " + hexadecimal(pointer.address) +
                " is shared (zeMemAllocShared), and migrates between host and device, so it cannot "
                "be exported: use zeMemAllocDevice, with a ze_external_memory_export_desc_t");
    }
    if (pointer.type == MemoryType::device) {
        if (const auto error = check_device(driver, pointer.device)) {
            error->raise();
        }
    }
}

Handle export_allocation(const Driver& driver, const Pointer& pointer, std::size_t length) {
    const Extent extent = extent_of(driver, pointer);
    if (!extent.holds(pointer.address, length)) {
        throw leaves(extent, pointer.address, length);
    }
    check_begins(driver, pointer, extent);
    UniqueFd fd = dmabuf_of(driver, pointer);
    check_size(driver, pointer, fd, extent);
    return {.fd = std::move(fd), .offset = pointer.address - extent.base};
}

} // namespace rdmabuf::detail::level_zero
