// SPDX-License-Identifier: BSD-3-Clause
#include "common/dmabuf_size.hpp"

#include <sys/stat.h>
#include <unistd.h>

namespace rdmabuf::detail {

std::optional<std::uint64_t> dmabuf_size(int fd) noexcept {
    // Seeking would move the position of a file that others may be reading. That of a dma-buf,
    // which is no regular file, stays where it is (dma_buf_llseek of drivers/dma-buf/dma-buf.c).
    struct ::stat status {};
    if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        return static_cast<std::uint64_t>(status.st_size);
    }
    const off_t end = ::lseek(fd, 0, SEEK_END);
    return end < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(end));
}

} // namespace rdmabuf::detail
