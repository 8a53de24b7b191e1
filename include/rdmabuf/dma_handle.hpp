// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>

/// The DMA handle type of rdma-core 59. The library declares the type itself, because older
/// versions of rdma-core do not declare it.
struct ibv_dmah; // NOLINT(readability-identifier-naming)

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocDmah {
    static constexpr const char* name = "ibv_dealloc_dmah";
    static int call(ibv_dmah* handle) noexcept;
};
} // namespace detail

/// The memory type in a TLP processing hint. See PCIe 6.0, section 6.17.
enum class TphMemory : std::uint8_t { volatile_memory = 0, persistent_memory = 1 };

struct DmaHandleOptions {
    /// The number of the CPU whose cache receives the data. If `cpu` is set, `memory` must be set,
    /// too.
    std::optional<std::uint32_t> cpu = std::nullopt;
    /// The type of the memory that the NIC accesses. If `memory` is set, `cpu` must be set, too.
    std::optional<TphMemory> memory = std::nullopt;
    /// The processing hint of the TLP: 0 for bidirectional, 1 for requester, 2 for target, 3 for
    /// target with priority. mlx5 requires a value.
    std::optional<std::uint8_t> processing_hint = std::nullopt;
};

/// A DMA handle, which contains the TLP processing hints (TPH) for the NIC's DMA into a region. A
/// hint selects, for example, the CPU whose cache receives the data. Copies share the handle, and
/// regions registered with the handle keep it alive. Requires mlx5, Linux 6.17 and rdma-core 59.
/// The library looks up the functions of rdma-core 59 at run time. See ibv_alloc_dmah(3).
class RDMABUF_EXPORT DmaHandle {
  public:
    /// Allocates a DMA handle. See drivers/infiniband/core/uverbs_std_types_dmah.c of Linux.
    /// @throws Error
    ///   - EINVAL: a processing hint above 3; only one of `cpu` and `memory` is set; no processing
    ///     hint on mlx5
    ///   - ENOSYS: libibverbs is older than rdma-core 59
    ///   - EPROTONOSUPPORT: the kernel is older than 6.17
    ///   - EOPNOTSUPP: the driver is not mlx5, or the device has no TPH
    ///   - EPERM: this process is not permitted to run on the CPU (sched_setaffinity(2))
    ///   - EBADF: @p context was closed, released or moved from
    DmaHandle(const Context& context, const DmaHandleOptions& options);

    /// Returns whether the loaded libibverbs supports DMA handles. Does not test the kernel or the
    /// device.
    [[nodiscard]] static Availability available();

    /// Returns the context on which the handle was allocated.
    /// @throws Error EBADF if this object was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("DmaHandle::context", "DmaHandle");
    }
    [[nodiscard]] ibv_dmah* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must deallocate the returned handle.
    [[nodiscard]] ibv_dmah* release() noexcept { return handle_.release(); }
    /// Deallocates the handle.
    /// @throws Error EBUSY if copies of this object, or regions registered with the handle, still
    ///         exist; the handle then stays allocated
    void close() { handle_.close(); }

  private:
    detail::shared_handle<ibv_dmah, detail::DeallocDmah, Context> handle_;
};

} // namespace rdmabuf
