// SPDX-License-Identifier: BSD-3-Clause
#include <linux/dma-buf.h>

#include <cerrno>

#include <rdmabuf/cpu_access.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/detail/unique_handle.hpp>

#include "base/file_descriptor.hpp"

namespace rdmabuf {
namespace {

static_assert(static_cast<unsigned>(CpuAccessMode::read) == DMA_BUF_SYNC_READ);
static_assert(static_cast<unsigned>(CpuAccessMode::write) == DMA_BUF_SYNC_WRITE);
static_assert(static_cast<unsigned>(CpuAccessMode::read_write) == DMA_BUF_SYNC_RW);

constexpr const char* sync_call = "ioctl(DMA_BUF_IOCTL_SYNC)";

/// Calls the ioctl DMA_BUF_IOCTL_SYNC. Returns 0 or the errno value.
int sync(int dmabuf, unsigned flags) noexcept {
    dma_buf_sync argument{};
    argument.flags = flags;
    return detail::ioctl_retrying(dmabuf, DMA_BUF_IOCTL_SYNC, &argument) < 0 ? errno : 0;
}

} // namespace

CpuAccess::CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode)
    : dmabuf_(dmabuf), mapping_(mapping), mode_(mode) {
    if (mapping.empty()) {
        throw Error(
            ENOTSUP, "mmap",
            "the CPU has no mapping of this memory; reach it through RDMA or the device that "
            "holds it");
    }
    if (dmabuf >= 0) {
        detail::check_zero(sync(dmabuf, DMA_BUF_SYNC_START | static_cast<unsigned>(mode)),
                           sync_call);
    }
}

CpuAccess::~CpuAccess() {
    if (dmabuf_ < 0) {
        return;
    }
    if (const int error = sync(dmabuf_, DMA_BUF_SYNC_END | static_cast<unsigned>(mode_));
        error != 0) {
        detail::report_teardown_failure(sync_call, error);
    }
}

} // namespace rdmabuf
