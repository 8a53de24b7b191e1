// SPDX-License-Identifier: BSD-3-Clause
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "objects/copy_bytes.hpp"
#include "objects/cuda_memory.hpp"
#include "objects/mapping.hpp"
#include "objects/memory_region.hpp"
#include "objects/object_table.hpp"
#include "objects/process.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {
namespace {

[[gnu::always_inline]] inline bool open(const Grant& grant, const Pd& pd, std::uint64_t address,
                                        std::uint64_t length, unsigned access, Window& window) {
    // The address and the length come from a work request, so they can have any value. Check them
    // separately, because their sum can overflow.
    if (grant.revoked || grant.mr->grant.revoked || grant.pd != &pd || address < grant.iova ||
        !lies_within(address - grant.iova, length, grant.length) ||
        (grant.access & access) != access) {
        return false;
    }
    if (grant.mr->is_foreign && !is_current(*grant.mr->shared, grant.mr->handle)) [[unlikely]] {
        return false; // the other process has deregistered its region
    }
    window.data = grant.base != nullptr ? grant.base + (address - grant.iova) : nullptr;
    window.length = length;
    window.mr = grant.mr;
    // The pages of an on-demand region are not pinned, so fault them in before the copy. If a page
    // is not mapped, the work request fails. Without this check, the copy would raise SIGSEGV.
    const bool on_demand = (grant.mr->grant.access & IBV_ACCESS_ON_DEMAND) != 0;
    constexpr unsigned writing =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if (on_demand && !populate(window.data, length, (access & writing) != 0, true)) {
        window = {};
        return false;
    }
    return true;
}

} // namespace

bool open_local(const Pd& pd, const ibv_sge& entry, bool write, Window& window) {
    if (entry.length == 0) {
        window = {};
        return true;
    }
    const Grant* const grant = process().keys.find_local(entry.lkey);
    if (grant == nullptr) {
        window = {};
        return false;
    }
    const unsigned access = write ? static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) : 0U;
    return open(*grant, pd, entry.addr, entry.length, access, window);
}

bool open_remote(const Qp& qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                 unsigned access, Window& window) {
    window = {};
    if (length == 0) {
        return true;
    }
    if (qp.qp_base.pd == nullptr) {
        return false; // this XRC target uses no shared receive queue now
    }
    const Grant* const grant = process().keys.find_remote(rkey);
    if (grant == nullptr || (grant->qp_number != 0 && grant->qp_number != qp.number())) {
        return false;
    }
    return open(*grant, qp.pd(), address, length, access, window);
}

bool copy_from(const Window& window, std::uint64_t offset, std::span<std::byte> into) noexcept {
    if (window.data == nullptr) {
        std::ranges::fill(into, std::byte{});
    } else if (!is_unmapped(window)) {
        std::memcpy(into.data(), window.data + offset, into.size());
    } else if (!read_cuda_memory(*window.mr->cuda, window.data + offset, into)) {
        window.mr->grant.revoked = true;
        return false;
    }
    return true;
}

bool copy_to(const Window& window, std::uint64_t offset,
             std::span<const std::byte> bytes) noexcept {
    if (window.data == nullptr) {
        return true;
    }
    if (!is_unmapped(window)) {
        copy_bytes(window.data + offset, bytes.data(), bytes.size());
    } else if (!write_cuda_memory(*window.mr->cuda, window.data + offset, bytes)) {
        window.mr->grant.revoked = true;
        return false;
    }
    return true;
}

void sync_cpu_access(const Window& window, bool write, bool begins) noexcept {
    if (window.mr == nullptr || window.mr->mapping == nullptr || !window.mr->mapping->is_dmabuf) {
        return;
    }
    dma_buf_sync request{};
    request.flags = (write ? DMA_BUF_SYNC_RW : DMA_BUF_SYNC_READ) |
                    (begins ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END);
    int result = 0;
    do {
        result = ::ioctl(window.mr->mapping->fd, DMA_BUF_IOCTL_SYNC, &request);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
}
} // namespace softverbs
