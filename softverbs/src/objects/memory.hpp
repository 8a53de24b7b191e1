// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "objects/device.hpp"

namespace softverbs {

struct Qp;
struct Mr;
struct CudaMemory; // cuda_memory.hpp

/// A mapping of a dma-buf, of a memfd that stands in for one, or of device memory.
struct Mapping; // mapping.hpp

/// What ibv_alloc_dm() took of a device: the ibv_dm of who took it and of all who imported it are
/// handles of it.
struct DeviceMemory {
    Device* device = nullptr;
    std::uint32_t handle = 0;
    Mapping* mapping = nullptr;
    std::size_t length = 0;   // asked for
    std::size_t consumed = 0; // of the device's
    unsigned regions = 0;
    unsigned holders = 0;
    /// By ibv_free_dm(): whoever holds it still can only let go.
    bool freed = false;
};

/// What an lkey or rkey opens: a memory region, or a memory window in one.
struct Grant {
    Pd* pd = nullptr;
    Mr* mr = nullptr; // the region itself, or the one the window is bound to
    std::uint32_t key = 0;
    unsigned access = 0;
    /// The first address that verbs know it by, and how far it goes.
    std::uint64_t iova = 0;
    std::size_t length = 0;
    /// Where iova is in this process. Null in null regions, which read as zeros and swallow writes.
    /// Of memory that is not mapped, an address of the device.
    std::byte* base = nullptr;
    /// Type 2B windows: the queue pair they belong to, and no other; 0: any.
    std::uint32_t qp_number = 0;
    bool is_window = false;
    bool revoked = false;
};

struct Mr : ibv_mr {
    Mr() : ibv_mr{} {}

    enum class Kind : std::uint8_t { host, dmabuf, device_memory, null, imported };
    Kind kind = Kind::host;
    Grant grant;
    /// Windows bound to it.
    unsigned users = 0;
    /// Of dma-bufs and device memory; null for private memory. Owned with the other regions in it.
    Mapping* mapping = nullptr;
    /// Of dma-bufs that cannot be mapped.
    const CudaMemory* cuda = nullptr;
    /// Where the region starts in the mapping.
    std::uint64_t mapping_offset = 0;
    /// Of device memory.
    DeviceMemory* device_memory = nullptr;
};

struct Mw : ibv_mw {
    Mw() : ibv_mw{} {}

    Grant grant; // key 0 while it is not bound
    /// Given out last; the program could have written to rkey.
    std::uint32_t last_key = 0;
};

struct Dm : ibv_dm {
    Dm() : ibv_dm{} {}

    DeviceMemory* memory = nullptr;
    bool imported = false;
};

// What the entry points of these verbs do, with the lock held. Null and errno, or an errno, as the
// verbs have it. Faults and forwarding are the entry points' business; arguments are checked here.

[[nodiscard]] Mr* reg_host_mr(Pd& pd, void* address, std::size_t length, std::uint64_t iova,
                              unsigned access);
[[nodiscard]] Mr* reg_dmabuf_mr(Pd& pd, std::uint64_t offset, std::size_t length,
                                std::uint64_t iova, int fd, unsigned access);
[[nodiscard]] Mr* reg_dm_mr(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length,
                            unsigned access);
[[nodiscard]] Mr* alloc_null_mr(Pd& pd);
/// As ibv_rereg_mr(3): 0 or IBV_REREG_MR_ERR_*, with errno.
[[nodiscard]] int rereg_mr(Mr& mr, int flags, Pd* pd, void* address, std::size_t length,
                           int access);
[[nodiscard]] int dereg_mr(Mr& mr);
/// Whether there is such a region, as there may not be when a request that names it is executed.
[[nodiscard]] bool is_alive(const ibv_mr* mr);
[[nodiscard]] int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags,
                            std::span<const ibv_sge> entries);
/// Nothing can be accessed any more by it and the windows in it.
void revoke(Mr& mr);

[[nodiscard]] Mw* alloc_mw(Pd& pd, ibv_mw_type type);
[[nodiscard]] int dealloc_mw(Mw& mw);
/// Executes a bind request of a queue pair: @p mw gets the key @p rkey. Returns false when the bind
/// is not permitted (IBV_WC_MW_BIND_ERR). The window and the region may have been deallocated since
/// the request was posted.
[[nodiscard]] bool bind_mw(const Qp& qp, Mw& mw, const ibv_mw_bind_info& info, std::uint32_t rkey);
/// The checks of ibv_bind_mw() that providers add to those in verbs.h: 0, EINVAL (zero-based), or
/// ENOTSUP (a kind of region that has no windows).
[[nodiscard]] int check_type_1_bind(const ibv_mw_bind_info& info);
/// The next key of a type 1 window.
[[nodiscard]] std::uint32_t next_window_key(const Mw& mw);
/// The key of a type 2 window for which the program chose @p rkey: only the low 8 bits count, and
/// the index bits are the window's.
[[nodiscard]] std::uint32_t chosen_window_key(const Mw& mw, std::uint32_t rkey);
/// Stores the key of a bind request in ibv_mw::rkey, when the request is posted. The window keeps
/// its former binding and key until the request is executed.
void set_window_key(Mw& mw, std::uint32_t rkey);
/// Invalidates a type 2 window, for a local invalidate or a send with invalidate. Returns false
/// when no such window is bound to this queue pair.
[[nodiscard]] bool invalidate(const Qp& qp, std::uint32_t rkey);
/// Of all type 2 windows bound to a queue pair, when it is reset or destroyed.
void invalidate_all(const Qp& qp);

[[nodiscard]] Dm* alloc_dm(Context& context, const ibv_alloc_dm_attr& attributes);
[[nodiscard]] int free_dm(Dm& dm);
/// A descriptor of the device memory that can be registered as a dma-buf; -1 and errno.
[[nodiscard]] int export_dm(Dm& dm);
/// Of the same device and this process, by ibv_dm::handle: another process would need the
/// descriptor of the memory, which verbs have no way to hand over. Null and ENOENT.
[[nodiscard]] Dm* import_dm(Context& context, std::uint32_t handle);
void unimport_dm(Dm& dm);

// For the engine

enum class Denied : std::uint8_t {
    no,
    /// No such key, another protection domain, out of bounds, or access it does not give: what
    /// these are in a completion depends on whose memory it is.
    key,
    domain,
    bounds,
    access,
    revoked,
};

/// Memory that may be used, for as long as the lock is held.
struct Window {
    /// Null in null regions.
    std::byte* data;
    std::size_t length;
    Mr* mr;
};

/// Whether the CPU cannot reach it, and a driver copies instead.
[[nodiscard]] inline bool is_unmapped(const Window& window) noexcept {
    return window.mr != nullptr && window.mr->cuda != nullptr;
}
/// Copies out of a window, and into one. False: the driver refused, and the region is revoked, as
/// when an exporter takes its memory back.
[[nodiscard]] bool copy_from(const Window& window, std::uint64_t offset,
                             std::span<std::byte> into) noexcept;
[[nodiscard]] bool copy_to(const Window& window, std::uint64_t offset,
                           std::span<const std::byte> bytes) noexcept;

/// An entry of a request. @param write  whether the device is going to write to it
[[nodiscard]] Denied open_local(const Pd& pd, const ibv_sge& entry, bool write, Window& window);
/// What a peer asks for. @param access  the IBV_ACCESS_REMOTE_* needed
[[nodiscard]] Denied open_remote(const Qp& qp, std::uint32_t rkey, std::uint64_t address,
                                 std::uint64_t length, unsigned access, Window& window);
/// Around the use of windows by the CPU: does what a real dma-buf needs for it
/// (DMA_BUF_IOCTL_SYNC), which is nothing for all others.
void begin_cpu_access(const Window& window, bool write) noexcept;
void end_cpu_access(const Window& window, bool write) noexcept;

/// A mapping that other processes can have as well: its descriptor, length, and name (not 0, unique
/// in this process); false for private memory.
struct Shareable {
    std::uint32_t id;
    int fd;
    std::size_t length;
    /// Of the window's first byte.
    std::uint64_t offset;
};
[[nodiscard]] bool shareable(const Window& window, Shareable& out) noexcept;

} // namespace softverbs
