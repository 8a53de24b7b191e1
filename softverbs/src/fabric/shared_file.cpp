// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/shared_file.hpp"

#include <fcntl.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

namespace softverbs::fabric {
namespace {

int sync(int fd, std::uint64_t flags) noexcept {
    dma_buf_sync request{};
    request.flags = flags;
    int done = 0;
    do {
        done = ::ioctl(fd, DMA_BUF_IOCTL_SYNC, &request);
    } while (done != 0 && (errno == EINTR || errno == EAGAIN));
    return done == 0 ? 0 : errno;
}

/// Returns whether the file is a dma-buf. DMA_BUF_IOCTL_SYNC with invalid flags fails with EINVAL
/// for a dma-buf, and with another errno, such as ENOTTY, for other files.
bool is_dma_buf(int fd) noexcept {
    return sync(fd, ~std::uint64_t{0}) == EINVAL;
}

/// Returns the size of the file in bytes, or a negative value on failure.
off_t size_of(int fd, bool dma_buf) noexcept {
    if (dma_buf) {
        return ::lseek(fd, 0, SEEK_END);
    }
    // Do not use lseek(2): it would change the file offset, which this process shares with the
    // process that sent the file descriptor.
    struct stat status {};
    return ::fstat(fd, &status) == 0 ? status.st_size : -1;
}

bool can_shrink(int fd) noexcept {
    const int seals = ::fcntl(fd, F_GET_SEALS);
    return seals < 0 || (seals & F_SEAL_SHRINK) == 0;
}

} // namespace

int SharedFile::map(UniqueFd fd, std::uint64_t length) noexcept {
    const bool dma_buf = is_dma_buf(fd.get());
    if (!dma_buf && can_shrink(fd.get())) {
        return EACCES;
    }
    const off_t size = size_of(fd.get(), dma_buf);
    if (size < 0 || length == 0 || length > static_cast<std::uint64_t>(size) ||
        length > std::numeric_limits<std::size_t>::max()) {
        return EINVAL;
    }
    mapping_ = Mapping(fd.get(), static_cast<std::size_t>(length), PROT_READ);
    if (!mapping_) {
        return errno == ENOMEM ? ENOMEM : EACCES;
    }
    if (dma_buf) {
        dma_buf_ = std::move(fd);
    }
    return 0;
}

int SharedFile::read(std::uint64_t offset, std::span<std::byte> into) const noexcept {
    if (offset > mapping_.size() || into.size() > mapping_.size() - offset) {
        return EINVAL;
    }
    if (into.empty()) {
        return 0;
    }
    if (!dma_buf_) {
        std::memcpy(into.data(), mapping_.bytes() + offset, into.size());
        return 0;
    }
    if (const int error = sync(dma_buf_.get(), DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ)) {
        return error;
    }
    std::memcpy(into.data(), mapping_.bytes() + offset, into.size());
    return sync(dma_buf_.get(), DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ);
}

} // namespace softverbs::fabric
