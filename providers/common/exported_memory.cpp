// SPDX-License-Identifier: BSD-3-Clause
#include "common/exported_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

std::optional<std::uint64_t> dmabuf_size(int fd) noexcept {
    // lseek(2) moves the position of a regular file, which other readers may share. A dma-buf has
    // no position: lseek only returns its size (dma_buf_llseek of drivers/dma-buf/dma-buf.c).
    struct ::stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        return static_cast<std::uint64_t>(status.st_size);
    }
    const off_t end = ::lseek(fd, 0, SEEK_END);
    return end < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(end));
}

UniqueFd take_descriptor(int raw, const char* call) {
    UniqueFd fd(raw);
    if (!fd) {
        throw Error(EIO, call, "the driver says that it succeeded, and gave no descriptor");
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
                    "the driver's dma-buf has " + std::to_string(*size) +
                        " bytes, which does not do for the " + described + ", from offset " +
                        std::to_string(exported.offset) + " on");
    }
}

} // namespace rdmabuf::detail
