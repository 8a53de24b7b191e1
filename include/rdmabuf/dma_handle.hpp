// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>

/// Of rdma-core 59 and newer; this library is built with older ones as well.
struct ibv_dmah; // NOLINT(readability-identifier-naming)

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT DeallocDmah {
    static constexpr const char* name = "ibv_dealloc_dmah";
    static int call(ibv_dmah* handle) noexcept;
};
} // namespace detail

/// The kind of memory that a NIC's hint is about. PCIe 6.0, 6.17.
enum class TphMemory : std::uint8_t { volatile_memory = 0, persistent_memory = 1 };

struct DmaHandleOptions {
    /// The processor whose cache the data goes to. Goes together with `memory`.
    std::optional<std::uint32_t> cpu = std::nullopt;
    std::optional<TphMemory> memory = std::nullopt;
    /// The processing hint, 0 to 3: bidirectional, requester, target, target with priority.
    /// mlx5 demands one.
    std::optional<std::uint8_t> processing_hint = std::nullopt;
};

/// How a NIC's writes into a region reach the processors: TLP processing hints (TPH). Copies share
/// it; regions registered with it keep it. ibv_alloc_dmah(3), of rdma-core 59, Linux 6.17 and mlx5;
/// looked for when it is used.
class RDMABUF_EXPORT DmaHandle {
  public:
    /// @throws Error EINVAL for a processing hint above 3, or a processor without the kind of
    /// memory
    ///         or the reverse; ENOSYS where libibverbs is older than rdma-core 59; from the kernel:
    ///         EPROTONOSUPPORT before 6.17, EOPNOTSUPP from drivers other than mlx5, EPERM for a
    ///         processor this process may not run on. uverbs_std_types_dmah.c.
    DmaHandle(const Context& context, const DmaHandleOptions& options);

    /// Whether libibverbs has DMA handles at all; it tells nothing about kernel and device.
    [[nodiscard]] static Availability available();

    /// @throws Error EBADF when this was closed, released or moved from.
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("DmaHandle::context", "DmaHandle");
    }
    [[nodiscard]] ibv_dmah* native() const noexcept { return handle_.get(); }
    /// The caller deallocates it from now on.
    [[nodiscard]] ibv_dmah* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while copies, or regions registered with it, exist.
    void close() { handle_.close(); }

  private:
    detail::shared_handle<ibv_dmah, detail::DeallocDmah, Context> handle_;
};

} // namespace rdmabuf
