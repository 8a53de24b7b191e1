// SPDX-License-Identifier: BSD-3-Clause
#include "common/exported_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf::detail {

std::optional<std::uint64_t> dmabuf_size(int fd) noexcept {
    // For a regular file, fstat(2) is used, because lseek(2) would move the file position, which
    // other descriptors may share. A dma-buf has no file position: lseek(2) only returns its size
    // (dma_buf_llseek in drivers/dma-buf/dma-buf.c).
    struct ::stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        return static_cast<std::uint64_t>(status.st_size);
    }
    const off_t end = ::lseek(fd, 0, SEEK_END);
    return end < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(end));
}

std::uint64_t known_dmabuf_size(int fd) {
    const auto size = dmabuf_size(fd);
    if (!size) {
        throw Error(errno, "lseek", "the size of the driver's dma-buf cannot be queried");
    }
    return *size;
}

UniqueFd take_descriptor(int raw, const char* call) {
    UniqueFd fd(raw);
    if (!fd) {
        throw Error(EIO, call, "the driver reported success, but returned no descriptor");
    }
    if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
        throw Error(errno, "fcntl(F_SETFD)");
    }
    return fd;
}

void check_holds(const ExportedMemory& exported, std::size_t length, const char* call,
                 const std::string& described) {
    const auto size = dmabuf_size(exported.fd.get());
    if (size && (exported.offset > *size || length > *size - exported.offset)) {
        throw Error(ERANGE, call,
                    "the dma-buf that the driver returned has " + std::to_string(*size) +
                        " bytes, but must contain the " + described + ", from offset " +
                        std::to_string(exported.offset) + " on");
    }
}

Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
             std::string_view why) {
    return {ERANGE, "export_range",
            std::to_string(length) + " bytes at offset " + std::to_string(address - extent.base) +
                " leave the buffer of " + std::to_string(extent.length) + " bytes at " +
                hexadecimal(extent.base) + std::string(why)};
}

void check_added(std::uintptr_t address, std::size_t length, const std::string& described) {
    constexpr const char* function = "add";
    if (length == 0) {
        throw Error(EINVAL, function, "a range of 0 bytes cannot be added");
    }
    if (address == 0) {
        throw Error(
            EINVAL, function,
            described + ": address 0 means an unknown address; use another address for the memory");
    }
    if (length > std::numeric_limits<std::uintptr_t>::max() - address) {
        throw Error(EINVAL, function, described + ": the end does not fit into 64 bits");
    }
}

void check_allocated(std::size_t size) {
    if (size == 0) {
        throw Error(EINVAL, "allocate", "a buffer of 0 bytes cannot be allocated");
    }
}

void check_exported(std::size_t length) {
    if (length == 0) {
        throw Error(EINVAL, "export_range", "a range of 0 bytes cannot be exported");
    }
}

void check_standard(std::string_view exporter, MappingKind mapping) {
    if (mapping != MappingKind::standard) {
        throw Error(ENOTSUP, "export_range",
                    std::string(exporter) + " memory supports only the standard mapping");
    }
}

void raise_freed(std::uintptr_t address) {
    throw Error(EFAULT, "export_range",
                "the allocation at " + hexadecimal(address) +
                    " was freed during the export, and its address belongs to another allocation "
                    "now; keep the memory until export_range() returns");
}

} // namespace rdmabuf::detail
