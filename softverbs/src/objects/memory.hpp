// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "objects/device.hpp"

namespace softverbs {

struct Qp;
struct Mr;
struct CudaMemory; // defined in cuda_memory.hpp

struct Mapping; // defined in mapping.hpp

/// Device memory that ibv_alloc_dm() has allocated. More than one ibv_dm can refer to it, because
/// ibv_import_dm() creates further ibv_dm objects.
struct DeviceMemory {
    Device* device = nullptr;
    std::uint32_t handle = 0;
    Mapping* mapping = nullptr;
    std::size_t length = 0;   // as the program requested
    std::size_t consumed = 0; // bytes of the device's max_dm_size that the allocation uses
    unsigned regions = 0;
    unsigned holders = 0;
    /// Whether ibv_free_dm() was called. The memory stays valid until the program has unimported
    /// all other ibv_dm objects for it, but it can no longer be registered or imported.
    bool freed = false;
    /// The device file of the context that has allocated the memory. Null for device memory of
    /// another process.
    std::shared_ptr<DeviceFile> file;
    /// The entry in file->table; null if other processes cannot import the memory.
    SharedObject* shared = nullptr;
};

/// The memory and the access rights that an lkey or rkey gives. The key belongs to a memory region
/// or a memory window.
struct Grant {
    Pd* pd = nullptr;
    Mr* mr = nullptr; // the region itself, or the region that the window is bound to
    /// 0 for a memory window, which has no lkey.
    std::uint32_t lkey = 0;
    /// 0 for a null memory region, and for a window that is not bound.
    std::uint32_t rkey = 0;
    unsigned access = 0;
    /// The address with which work requests refer to the first byte of the memory.
    std::uint64_t iova = 0;
    /// Length of the memory in bytes.
    std::size_t length = 0;
    /// Virtual address of the first byte in this process. For CUDA memory that the CPU cannot map,
    /// the device address. Null for a null memory region, and for a dma-buf that was registered
    /// unchecked (Rules::dmabuf_unchecked): reads return zeros, and writes have no effect.
    std::byte* base = nullptr;
    /// For a type 2 window: number of the queue pair that may use the window. 0: all queue pairs of
    /// the protection domain may use the region or window.
    std::uint32_t qp_number = 0;
    bool is_window = false;
    bool revoked = false;
};

struct Mr : ibv_mr {
    Mr() : ibv_mr{} {}

    enum class Kind : std::uint8_t { host, dmabuf, device_memory, null, imported };
    Kind kind = Kind::host;
    Grant grant;
    /// Number of memory windows that are bound to this region.
    unsigned users = 0;
    /// The mapping of a dma-buf, of device memory, or of a region of another process. Null for
    /// other memory, and for a dma-buf that the CPU cannot map. Regions of the same memory usually
    /// share one mapping; see mapping.hpp.
    Mapping* mapping = nullptr;
    /// The CUDA memory of a dma-buf that the CPU cannot map; otherwise null.
    const CudaMemory* cuda = nullptr;
    /// Offset of the region in the mapping in bytes.
    std::uint64_t mapping_offset = 0;
    /// The device memory, for a region of ibv_reg_dm_mr(); otherwise null.
    DeviceMemory* device_memory = nullptr;
    /// The entry in DeviceFile::table; null if other processes cannot import the region.
    SharedObject* shared = nullptr;
    /// Whether this object describes a memory region of another process. `shared` is then an entry
    /// in the table of that process, and the region exists as long as is_current(*shared, handle)
    /// is true.
    bool is_foreign = false;
};

struct Mw : ibv_mw {
    Mw() : ibv_mw{} {}

    Grant grant;
    /// The key of the window. Type 1: the key of the bind request that was posted last. Type 2: the
    /// key of the bind request that was executed last. ibv_mw::rkey cannot be used instead, because
    /// the program may overwrite it.
    std::uint32_t last_key = 0;
};

struct Dm : ibv_dm {
    Dm() : ibv_dm{} {}

    DeviceMemory* memory = nullptr;
    bool imported = false;
};

// These functions implement verbs with similar names; reg_host_mr() implements ibv_reg_mr(). They
// check their arguments. On failure, they return null and set errno, or return an errno. The caller
// must hold Process::lock; the functions that fault in pages, unmap memory or wait for direct
// writes release it temporarily. The caller must not call them for objects of the real libibverbs,
// nor if an injected fault (see Faults::enter()) makes the verb fail.

[[nodiscard]] Mr* reg_host_mr(Pd& pd, void* address, std::size_t length, std::uint64_t iova,
                              unsigned access);
[[nodiscard]] Mr* reg_dmabuf_mr(Pd& pd, std::uint64_t offset, std::size_t length,
                                std::uint64_t iova, int fd, unsigned access);
[[nodiscard]] Mr* reg_dm_mr(Pd& pd, Dm& dm, std::uint64_t offset, std::size_t length,
                            unsigned access);
[[nodiscard]] Mr* alloc_null_mr(Pd& pd);
/// Implements ibv_rereg_mr(3). Returns 0, or IBV_REREG_MR_ERR_* with errno set.
[[nodiscard]] int rereg_mr(Mr& mr, int flags, Pd* pd, void* address, std::size_t length,
                           int access);
[[nodiscard]] int dereg_mr(Mr& mr);
/// Returns whether the region still exists. The program may have deregistered the region after it
/// posted a work request that uses it.
[[nodiscard]] bool is_alive(const ibv_mr* mr);
[[nodiscard]] int advise_mr(Pd& pd, ibv_advise_mr_advice advice, std::uint32_t flags,
                            std::span<const ibv_sge> entries);
/// Denies all further accesses to the memory region and to the memory windows bound to it, as after
/// the exporter of a dma-buf has revoked the memory.
void revoke(Mr& mr);

[[nodiscard]] Mw* alloc_mw(Pd& pd, ibv_mw_type type);
[[nodiscard]] int dealloc_mw(Mw& mw);
/// Executes a bind request: binds the window @p mw to a region and gives the window the key @p
/// rkey. A request without a region or with length 0 unbinds a type 1 window. Returns false if the
/// bind is not permitted (IBV_WC_MW_BIND_ERR). Checks that the window and the region still exist.
/// @param old_rkey  for type 2: ibv_mw::rkey when the request was posted. It must be the current
///                  key of the window, as with Soft-RoCE (rxe_bind_mw() in the kernel). Providers
///                  do not change ibv_mw::rkey of a type 2 window: the program must.
[[nodiscard]] bool bind_mw(const Qp& qp, Mw& mw, const ibv_mw_bind_info& info, std::uint32_t rkey,
                           std::uint32_t old_rkey);
/// Checks the arguments of ibv_bind_mw() as a provider does; verbs.h makes further checks. Returns
/// 0, EINVAL (the window or the region is zero-based), ENOTSUP (regions of this kind, such as
/// regions of device memory, do not permit windows), or EOPNOTSUPP (see can_bind()).
[[nodiscard]] int check_type_1_bind(const Qp& qp, const ibv_mw_bind_info& info);
/// Returns whether the device supports the length in a bind request. If not, the verb returns
/// EOPNOTSUPP. As in the mlx5 provider (set_bind_wr()), an mlx5 device supports windows of at most
/// 2 GiB.
[[nodiscard]] bool can_bind(const Qp& qp, const ibv_mw_bind_info& info);
/// Unbinds a type 2 window, for a local invalidate or a received send with invalidate. Returns
/// false if no window with this key is bound on this queue pair.
[[nodiscard]] bool invalidate(const Qp& qp, std::uint32_t rkey);
/// Unbinds all type 2 windows of a queue pair that is being reset or destroyed.
void invalidate_all(const Qp& qp);

[[nodiscard]] Dm* alloc_dm(Context& context, const ibv_alloc_dm_attr& attributes);
[[nodiscard]] int free_dm(Dm& dm);
/// Returns a new file descriptor of the device memory, which can be passed to ibv_reg_dmabuf_mr().
/// The caller owns the descriptor. On failure, returns -1 and sets errno.
[[nodiscard]] int export_dm(Dm& dm);
/// Creates an ibv_dm for existing device memory with this handle. On failure, returns null and sets
/// errno: ENOENT (there is no such device memory on the device), ENOMEM; for device memory of
/// another process also the errno of open_memory() or map_descriptor().
[[nodiscard]] Dm* import_dm(Context& context, std::uint32_t handle);
void unimport_dm(Dm& dm);

/// A range of memory to which a key gives access. The caller may access the memory only until it
/// releases Process::lock.
struct Window {
    /// Virtual address of the first byte in this process, or CUDA device address. Null for an empty
    /// range, and if Grant::base is null.
    std::byte* data;
    std::size_t length;
    Mr* mr;
};

/// Returns true if the CPU cannot access the memory. The CUDA driver must then copy the data.
[[nodiscard]] inline bool is_unmapped(const Window& window) noexcept {
    return window.mr != nullptr && window.mr->cuda != nullptr;
}
/// Copies the bytes at @p offset in the memory range @p window to @p into. Returns false if the
/// CUDA driver reports an error; the region is then revoked.
[[nodiscard]] bool copy_from(const Window& window, std::uint64_t offset,
                             std::span<std::byte> into) noexcept;
/// Copies @p bytes to @p offset in the memory range @p window. Returns false if the CUDA driver
/// reports an error; the region is then revoked.
[[nodiscard]] bool copy_to(const Window& window, std::uint64_t offset,
                           std::span<const std::byte> bytes) noexcept;

/// Checks a scatter/gather entry of a work request of this process, and stores its memory range in
/// @p window. Returns whether the access is permitted. An entry of length 0 is always permitted.
/// @param write  whether data will be written to the memory
[[nodiscard]] bool open_local(const Pd& pd, const ibv_sge& entry, bool write, Window& window);
/// Checks the remote address and rkey in a peer's request, and stores the memory range in @p
/// window. Returns whether the access is permitted. A length of 0 is always permitted.
/// @param access  the required IBV_ACCESS_REMOTE_* flags
[[nodiscard]] bool open_remote(const Qp& qp, std::uint32_t rkey, std::uint64_t address,
                               std::uint64_t length, unsigned access, Window& window);
/// Must be called before the CPU accesses the memory (@p begins is true), and afterwards. Uses
/// DMA_BUF_IOCTL_SYNC for a real dma-buf, and does nothing for other memory.
void sync_cpu_access(const Window& window, bool write, bool begins) noexcept;

} // namespace softverbs
