// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_export.hpp"

#include <fcntl.h>

#include <cerrno>
#include <limits>
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

/// Duplicates a descriptor that the driver owns. The driver returns the same descriptor to later
/// callers, so this descriptor must not be closed.
UniqueFd duplicate(int fd, const char* function) {
    UniqueFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!own) {
        throw Error(errno, "fcntl(F_DUPFD_CLOEXEC)",
                    std::string(function) +
                        " returned a descriptor that cannot be duplicated: " + std::to_string(fd));
    }
    return own;
}

/// Exports memory by the method of the specification: zeMemGetAllocProperties.
std::variant<UniqueFd, Result> export_descriptor(const Driver& driver, const Pointer& pointer) {
    ExportFd exported;
    AllocationProperties properties;
    properties.next = &exported;
    Device device = nullptr;
    const Result asked = driver.functions().mem_get_alloc_properties(
        pointer.context, reinterpret_cast<const void*>(pointer.address), &properties, &device);
    if (asked != success) {
        return asked;
    }
    if (exported.fd < 0) {
        return unsupported_feature;
    }
    return duplicate(exported.fd, export_call);
}

/// Owns an IPC handle, and releases the handle if the loader has zeMemPutIpcHandle. If the loader
/// lacks this function, the driver releases the handle when the memory is freed.
class IpcExport {
  public:
    IpcExport(const Driver& driver, const Pointer& pointer, std::uintptr_t base)
        : functions_(&driver.functions()), context_(pointer.context) {
        Driver::check(
            functions_->mem_get_ipc_handle(context_, reinterpret_cast<const void*>(base), &handle_),
            "zeMemGetIpcHandle",
            "the memory at " + hexadecimal(pointer.address) +
                " was not allocated for export, and cannot be shared by IPC either; " +
                descriptor_remedy);
    }
    ~IpcExport() {
        if (functions_->mem_put_ipc_handle != nullptr) {
            report_teardown(functions_->mem_put_ipc_handle(context_, handle_), "zeMemPutIpcHandle");
        }
    }
    IpcExport(const IpcExport&) = delete;
    IpcExport& operator=(const IpcExport&) = delete;

    /// Returns the file descriptor that the IPC handle contains. The IPC handle owns the
    /// descriptor. The other contents of the handle are private to the driver.
    [[nodiscard]] int fd() const {
        constexpr const char* function = "zeMemGetFileDescriptorFromIpcHandleExp";
        std::uint64_t fd = 0;
        Driver::check(
            functions_->mem_get_fd_from_ipc_handle(context_, handle_, &fd), function,
            std::string("the descriptor of an IPC handle cannot be queried; ") + descriptor_remedy);
        if (fd > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
            throw Error(
                EIO, function,
                "the driver returned " + std::to_string(fd) + ", which is not a descriptor");
        }
        return static_cast<int>(fd);
    }

  private:
    const Functions* functions_;
    Context context_;
    IpcHandle handle_;
};

/// Returns true if the driver may have refused the export because the memory was allocated without
/// a ze_external_memory_export_desc_t. Returns false for other failures.
bool may_lack_descriptor(Result result) noexcept {
    return result == unsupported_feature || result == unsupported_enumeration ||
           result == invalid_enumeration || result == invalid_argument;
}

UniqueFd export_by_ipc(const Driver& driver, const Pointer& pointer, std::uintptr_t base,
                       Result refused) {
    const std::string what =
        "the memory at " + hexadecimal(pointer.address) + " is not exported as a dma-buf";
    if (pointer.type == MemoryType::host) {
        throw Error(EOPNOTSUPP, export_call,
                    Driver::name_of(refused) + ": " + what +
                        ": it is host memory; register it as host memory, with MemoryRegion");
    }
    if (driver.functions().mem_get_fd_from_ipc_handle == nullptr) {
        throw Error(EOPNOTSUPP, export_call,
                    Driver::name_of(refused) + ": " + what + "; " + descriptor_remedy + " (" +
                        driver.library() +
                        " does not have zeMemGetFileDescriptorFromIpcHandleExp of Level Zero 1.10, "
                        "which could export the memory by its IPC handle)");
    }
    const IpcExport ipc(driver, pointer, base);
    return duplicate(ipc.fd(), "zeMemGetFileDescriptorFromIpcHandleExp");
}

UniqueFd dmabuf_of(const Driver& driver, const Pointer& pointer, std::uintptr_t base) {
    auto exported = export_descriptor(driver, pointer);
    if (auto* const fd = std::get_if<UniqueFd>(&exported)) {
        return std::move(*fd);
    }
    const Result refused = std::get<Result>(exported);
    if (!may_lack_descriptor(refused)) {
        Driver::raise(
            refused, export_call,
            "the memory at " + hexadecimal(pointer.address) + " cannot be exported as a dma-buf");
    }
    return export_by_ipc(driver, pointer, base, refused);
}

/// Checks that the allocation begins where its dma-buf begins. The dma-buf of a pool contains many
/// allocations, and no function returns the offset of an allocation in the pool. All addresses of a
/// pool have the same id, so the allocation begins in a pool if the byte before it has its id. The
/// size of the dma-buf does not tell, because a driver may round it up or use a larger buffer
/// object again.
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

/// Checks that the dma-buf is not shorter than the allocation.
void check_size(const UniqueFd& fd, const Extent& extent) {
    const auto size = dmabuf_size(fd.get());
    if (!size) {
        throw Error(errno, "lseek", "the size of the driver's dma-buf cannot be queried");
    }
    if (*size < extent.length) {
        throw Error(
            ERANGE, export_call,
            "the driver's dma-buf has " + std::to_string(*size) + " bytes, and the allocation at " +
                hexadecimal(extent.base) + " has " + std::to_string(extent.length) +
                ": the allocation is spread over several dma-bufs, as on a GPU with several tiles; "
                "allocate on one tile (a sub-device, or ZE_FLAT_DEVICE_HIERARCHY=FLAT)");
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
    UniqueFd fd = dmabuf_of(driver, pointer, extent.base);
    check_size(fd, extent);
    return {.fd = std::move(fd), .offset = pointer.address - extent.base};
}

} // namespace rdmabuf::detail::level_zero
