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
struct CudaMemory; // defined in cuda_memory.hpp

/// A mapping of a dma-buf, of a memfd that replaces one, or of device memory.
struct Mapping; // defined in mapping.hpp

/// An allocation made by ibv_alloc_dm(). Several ibv_dm handles can refer to it: the one of
/// ibv_alloc_dm() and those of ibv_import_dm().
struct DeviceMemory {
    Device* device = nullptr;
    std::uint32_t handle = 0;
    Mapping* mapping = nullptr;
    std::size_t length = 0;   // as the program requested
    std::size_t consumed = 0; // of the device's max_dm_size
    unsigned regions = 0;
    unsigned holders = 0;
    /// ibv_free_dm() was called: the remaining handles can only be unimported.
    bool freed = false;
};

/// The memory and access rights behind an lkey or rkey: a memory region, or a memory window.
struct Grant {
    Pd* pd = nullptr;
    Mr* mr = nullptr; // the region itself, or the region that the window is bound to
    std::uint32_t key = 0;
    unsigned access = 0;
    /// First address of the region, as work requests use it.
    std::uint64_t iova = 0;
    /// Length of the region in bytes.
    std::size_t length = 0;
    /// Address of the first byte in this process. If the CPU cannot map the memory, it is the CUDA
    /// device address. Null for null memory regions, which are read as zeros and discard writes.
    std::byte* base = nullptr;
    /// Type 2B window: the only queue pair that may use it. 0: any queue pair of the protection
    /// domain.
    std::uint32_t qp_number = 0;
    bool is_window = false;
    bool revoked = false;
};

struct Mr : ibv_mr {
    Mr() : ibv_mr{} {}

    enum class Kind : std::uint8_t { host, dmabuf, device_memory, null, imported };
    Kind kind = Kind::host;
    Grant grant;
    /// Number of memory windows bound to this region.
    unsigned users = 0;
    /// The mapping of dma-buf or device memory; null for ordinary memory. Several regions can use
    /// one mapping; the last one frees it.
    Mapping* mapping = nullptr;
    /// Set for dma-bufs that the CPU cannot map.
    const CudaMemory* cuda = nullptr;
    /// Offset of the region in the mapping, in bytes.
    std::uint64_t mapping_offset = 0;
    /// Set for regions of device memory.
    DeviceMemory* device_memory = nullptr;
};

struct Mw : ibv_mw {
    Mw() : ibv_mw{} {}

    Grant grant; // its key is 0 while the window is not bound
    /// The latest key of this window. It is stored here because the program can overwrite
    /// ibv_mw::rkey.
    std::uint32_t last_key = 0;
};

struct Dm : ibv_dm {
    Dm() : ibv_dm{} {}

    DeviceMemory* memory = nullptr;
    bool imported = false;
};

// The functions below implement the verbs of the same name. They check their arguments, and fail as
// the verb does: they return null and set errno, or return an errno. The caller holds
// Process::lock. The entry points in abi/ call these functions; the entry points also inject
// faults, and forward calls for handles of the real libibverbs.

[[nodiscard]] Mr* reg_host_mr(Pd& pd, void* address, std::size_t length, std::uint64_t iova,
                              unsigned access);
[[nodiscard]] Mr* reg_dmabuf_mr(Pd& pd, std::uint64_t offset, std::size_t length,
                                std::uint64_t iova, int fd, unsigned access);
[[nodiscard]] Mr* reg_dm_mr(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length,
                            unsigned access);
[[nodiscard]] Mr* alloc_null_mr(Pd& pd);
/// Like ibv_rereg_mr(3): 0, or an IBV_REREG_MR_ERR_* code with errno set.
[[nodiscard]] int rereg_mr(Mr& mr, int flags, Pd* pd, void* address, std::size_t length,
                           int access);
[[nodiscard]] int dereg_mr(Mr& mr);
/// Whether the region still exists. A work request may be executed after its region was
/// deregistered.
[[nodiscard]] bool is_alive(const ibv_mr* mr);
[[nodiscard]] int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags,
                            std::span<const ibv_sge> entries);
/// Makes the region and the windows bound to it inaccessible, as when a dma-buf exporter revokes
/// the memory.
void revoke(Mr& mr);

[[nodiscard]] Mw* alloc_mw(Pd& pd, ibv_mw_type type);
[[nodiscard]] int dealloc_mw(Mw& mw);
/// Executes a bind request of a queue pair: @p mw gets the key @p rkey. Returns false when the bind
/// is not permitted (IBV_WC_MW_BIND_ERR). The window and the region may have been deallocated since
/// the request was posted.
[[nodiscard]] bool bind_mw(const Qp& qp, Mw& mw, const ibv_mw_bind_info& info, std::uint32_t rkey);
/// Makes the checks of ibv_bind_mw() that providers make in addition to those in verbs.h. Returns
/// 0, EINVAL (the window is zero-based), or ENOTSUP (windows cannot be bound to this kind of
/// region).
[[nodiscard]] int check_type_1_bind(const ibv_mw_bind_info& info);
/// Returns the key that the next bind of a type 1 window assigns.
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
/// Unbinds all type 2 windows of a queue pair that is reset or destroyed.
void invalidate_all(const Qp& qp);

[[nodiscard]] Dm* alloc_dm(Context& context, const ibv_alloc_dm_attr& attributes);
[[nodiscard]] int free_dm(Dm& dm);
/// Returns a descriptor of the device memory. The caller owns it and can register it as a dma-buf.
/// Returns -1 and sets errno on failure.
[[nodiscard]] int export_dm(Dm& dm);
/// Finds an allocation of this process by ibv_dm::handle. An allocation of another process cannot
/// be imported, because verbs cannot pass the descriptor of its memory. Returns null and sets errno
/// on failure: ENOENT (no such handle on this device), ENOMEM.
[[nodiscard]] Dm* import_dm(Context& context, std::uint32_t handle);
void unimport_dm(Dm& dm);

// The engine uses the declarations below.

enum class Denied : std::uint8_t {
    no,
    /// The reason for denying access to memory: unknown key, other protection domain, out of
    /// bounds, missing access flag. The completion status also depends on whether the memory is
    /// local or remote.
    key,
    domain,
    bounds,
    access,
    revoked,
};

/// A range of memory that may be accessed while Process::lock is held.
struct Window {
    /// Address of the first byte; null for null memory regions.
    std::byte* data;
    std::size_t length;
    Mr* mr;
};

/// Returns whether the memory is CUDA memory that the CPU cannot access, so that the CUDA driver
/// must copy it.
[[nodiscard]] inline bool is_unmapped(const Window& window) noexcept {
    return window.mr != nullptr && window.mr->cuda != nullptr;
}
/// Copies from a window (a range of memory). Returns false if the CUDA driver reports an error. The
/// region is then revoked, as when a dma-buf exporter revokes its memory.
[[nodiscard]] bool copy_from(const Window& window, std::uint64_t offset,
                             std::span<std::byte> into) noexcept;
/// Copies to a window. Returns false as copy_from() does.
[[nodiscard]] bool copy_to(const Window& window, std::uint64_t offset,
                           std::span<const std::byte> bytes) noexcept;

/// Checks a scatter/gather entry of a local work request.
/// @param write  whether the device will write to the memory
[[nodiscard]] Denied open_local(const Pd& pd, const ibv_sge& entry, bool write, Window& window);
/// Checks the memory that a peer's request names.
/// @param access  the required IBV_ACCESS_REMOTE_* flags
[[nodiscard]] Denied open_remote(const Qp& qp, std::uint32_t rkey, std::uint64_t address,
                                 std::uint64_t length, unsigned access, Window& window);
/// Call these functions before and after the CPU accesses a memory range (window). For a real
/// dma-buf they call DMA_BUF_IOCTL_SYNC; for other memory they do nothing.
void begin_cpu_access(const Window& window, bool write) noexcept;
void end_cpu_access(const Window& window, bool write) noexcept;

/// Memory that other processes can map.
struct Shareable {
    /// Id of the mapping: unique in this process, and not 0.
    std::uint32_t id;
    /// Descriptor of the memory.
    int fd;
    /// Length of the memory in bytes.
    std::size_t length;
    /// Offset of the window in the mapping, in bytes.
    std::uint64_t offset;
};
/// Stores in @p out how another process can map the memory of @p window. Returns false for ordinary
/// private memory, which other processes cannot map.
[[nodiscard]] bool shareable(const Window& window, Shareable& out) noexcept;

} // namespace softverbs
