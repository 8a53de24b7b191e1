// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_range.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/exported_memory.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {
namespace {

constexpr const char* export_call = "hsa_amd_portable_export_dmabuf";

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
        // Export with the standard mapping: it was requested, or it replaces MappingKind::pcie.
        // Runtimes before HSA AMD extension 1.9 do not have the flag for MappingKind::pcie, and
        // devices with a small BAR refuse the flag.
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
    const std::uint64_t size = known_dmabuf_size(fd);
    if (offset > size || length > size - offset) {
        throw Error(ERANGE, export_call,
                    begins + "but the dma-buf has " + std::to_string(size) +
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
                        "host memory, which HSA does not export: register it as host memory, by "
                        "ibv_reg_mr()");
    }
    if (const auto error = check_dmabufs(driver)) {
        error->raise();
    }
}

ExportedRange export_from(const Driver& driver, const Pointer& pointer, std::size_t length,
                          MappingKind mapping) {
    const Extent allocation{.base = pointer.base, .length = pointer.length};
    if (!allocation.holds(pointer.address, length)) {
        throw leaves(allocation, pointer.address, length);
    }
    const Pages pages = pages_of(pointer, length);
    const Answer answer = ask(driver, pointer, pages, mapping);
    // hsa_amd_portable_close_dmabuf only calls close(2), so the range closes the descriptor itself.
    UniqueFd fd = take_descriptor(answer.fd, export_call);
    // One dma-buf can hold several small allocations. `answer.offset` is the offset of the exported
    // pages in the dma-buf.
    const std::uint64_t offset = answer.offset + (pointer.address - pages.begin);
    check_dmabuf(fd.get(), offset, pointer, length);
    return {name_of_exporter, std::move(fd), offset, length, pointer.address, answer.mapping};
}

} // namespace rdmabuf::detail::rocm
