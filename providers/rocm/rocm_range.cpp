// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_range.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/exported_memory.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {
namespace {

constexpr const char* export_call = "hsa_amd_portable_export_dmabuf";

void close_dmabuf(const Driver& driver, int fd) noexcept {
    // The descriptor is closed through HSA. close(2) is called instead in two cases: in a child
    // process of the process that initialised HSA, and after HSA was shut down.
    if (!Runtime::is_parents()) {
        const Status closed = driver.functions().close_dmabuf(fd);
        if (closed != not_initialized) {
            report_teardown(closed, "hsa_amd_portable_close_dmabuf");
            return;
        }
    }
    if (::close(fd) != 0) {
        report_teardown_failure("close", errno);
    }
}

/// Owns a descriptor that the driver returned. release() passes the ownership to the caller.
class DriversFd {
  public:
    DriversFd(const Driver& driver, int fd) noexcept : driver_(&driver), fd_(fd) {}
    ~DriversFd() {
        if (fd_ >= 0) {
            close_dmabuf(*driver_, fd_);
        }
    }
    DriversFd(const DriversFd&) = delete;
    DriversFd& operator=(const DriversFd&) = delete;

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

  private:
    const Driver* driver_;
    int fd_;
};

/// Describes the range of memory that the driver must export.
struct Pages {
    std::uintptr_t begin;
    std::size_t length;
};

/// Returns the pages that contain the range, limited to the allocation, because the driver refuses
/// memory outside the allocation.
Pages pages_of(const Pointer& pointer, std::size_t length) {
    const std::size_t before =
        std::min(pointer.address % page_size(), pointer.address - pointer.base);
    const std::uintptr_t begin = pointer.address - before;
    const std::size_t most = pointer.length - (begin - pointer.base);
    const std::size_t in_last = (pointer.address + length) % page_size();
    const std::size_t after = in_last == 0 ? 0 : page_size() - in_last;
    return {.begin = begin, .length = std::min(before + length + after, most)};
}

/// Describes the dma-buf that the driver returned.
struct Answer {
    int fd = -1;
    std::uint64_t offset = 0;
    MappingKind mapping = MappingKind::standard;
};

Answer ask(const Driver& driver, const Pointer& pointer, const Pages& pages, MappingKind mapping) {
    const Functions& functions = driver.functions();
    void* const begin = pointer_to(pages.begin);
    Answer answer;
    Status got = not_supported;
    if (mapping == MappingKind::pcie && functions.export_dmabuf_v2 != nullptr) {
        answer.mapping = MappingKind::pcie;
        got = functions.export_dmabuf_v2(begin, pages.length, &answer.fd, &answer.offset,
                                         mapping_type_pcie);
    }
    if (got == not_supported) {
        // The standard mapping is exported instead of MappingKind::pcie. Runtimes before HSA AMD
        // extension 1.9 do not have the flag for MappingKind::pcie, and devices with a small BAR
        // refuse the flag.
        answer.mapping = MappingKind::standard;
        got = functions.export_dmabuf(begin, pages.length, &answer.fd, &answer.offset);
    }
    if (got != success) {
        std::string hint = std::to_string(pages.length) + " bytes at " + hexadecimal(pages.begin) +
                           " of " + pci_address(driver, pointer.owner) + " were requested";
        if (got == out_of_resources) {
            hint +=
                "; the kernel returned no descriptor: check the limit of open files (ulimit -n), "
                "and the kernel log (dmesg)";
        }
        driver.raise(got, export_call, hint);
    }
    return answer;
}

void check_dmabuf(int fd, std::uint64_t offset, const Pointer& pointer, std::size_t length) {
    const std::string begins = "the driver reports that " + hexadecimal(pointer.address) +
                               " is at offset " + std::to_string(offset) + " of its dma-buf, ";
    if (offset % page_size() != pointer.address % page_size()) {
        throw Error(
            EIO, export_call,
            begins +
                "which is another position in a page: a NIC could not use the address as the iova");
    }
    const auto size = dmabuf_size(fd);
    if (!size) {
        throw Error(errno, "lseek", "the size of the driver's dma-buf cannot be queried");
    }
    if (offset > *size || length > *size - offset) {
        throw Error(ERANGE, export_call,
                    begins + "but the dma-buf has " + std::to_string(*size) +
                        " bytes, too few for the " + std::to_string(length) +
                        " bytes requested from that offset on");
    }
}

} // namespace

void check_exportable(const Driver& driver, const Pointer& pointer) {
    const std::string what = "the memory at " + hexadecimal(pointer.address) + " is ";
    // Some types of memory are refused before the driver is called, because the driver's own error
    // would be less precise.
    if (pointer.type == PointerType::mapped || pointer.type == PointerType::reserved) {
        throw Error(EOPNOTSUPP, export_call,
                    what +
                        "at reserved addresses (hipMemMap, hipMallocAsync), which HSA does not "
                        "export: allocate with hipMalloc, or export the handle of the memory "
                        "(hipMemExportToShareableHandle), and add the descriptor to an exporter of "
                        "make_external_exporter()");
    }
    if (pointer.type == PointerType::ipc || pointer.type == PointerType::graphics) {
        const bool ipc = pointer.type == PointerType::ipc;
        throw Error(EOPNOTSUPP, export_call,
                    what +
                        (ipc ? "of another process (hipIpcOpenMemHandle): export it in that process"
                             : "of a graphics driver: export it with that driver") +
                        ", and add the descriptor to an exporter of make_external_exporter()");
    }
    if (kind_of(driver, pointer) == MemoryKind::pinned_host) {
        throw Error(EOPNOTSUPP, export_call,
                    what +
                        "host memory, which HSA does not export: register it as host memory, with "
                        "MemoryRegion");
    }
    if (const auto error = check_dmabufs(driver)) {
        error->raise();
    }
}

ExportedRange export_from(const std::shared_ptr<const Runtime>& runtime, const Pointer& pointer,
                          std::size_t length, MappingKind mapping) {
    const Extent allocation{.base = pointer.base, .length = pointer.length};
    if (!allocation.holds(pointer.address, length)) {
        throw leaves(allocation, pointer.address, length);
    }
    const Driver& driver = runtime->driver();
    const Pages pages = pages_of(pointer, length);
    const Answer answer = ask(driver, pointer, pages, mapping);
    DriversFd fd(driver, answer.fd);
    if (fd.get() < 0) {
        throw Error(EIO, export_call, "the driver reported success, but returned no descriptor");
    }
    // The kernel already sets close-on-exec on the descriptor. fcntl(2) sets the flag again,
    // because the driver's interface does not guarantee the flag.
    if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
        throw Error(errno, "fcntl(F_SETFD)");
    }
    // One dma-buf can hold several small allocations. `answer.offset` is the offset of the exported
    // pages in the dma-buf.
    const std::uint64_t offset = answer.offset + (pointer.address - pages.begin);
    check_dmabuf(fd.get(), offset, pointer, length);
    ExportedRange::Release release = [runtime](int closed) {
        close_dmabuf(runtime->driver(), closed);
    };
    std::string name = name_of_exporter;
    return {std::move(name), fd.release(),    std::move(release), offset,
            length,          pointer.address, answer.mapping};
}

} // namespace rdmabuf::detail::rocm
