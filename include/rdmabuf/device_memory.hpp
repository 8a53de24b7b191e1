// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/access.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/status.hpp>

namespace rdmabuf {

namespace detail {
struct RDMABUF_EXPORT FreeDm {
    static constexpr const char* name = "ibv_free_dm";
    static int call(ibv_dm* dm) noexcept;
    static void unimport(ibv_dm* dm) noexcept;
};
using DeviceMemoryHandle = shared_handle<ibv_dm, FreeDm, Context>;
} // namespace detail

struct DeviceMemoryOptions {
    /// The address in device memory is a multiple of 2^log2_alignment bytes. The device has a
    /// minimum (64 bytes on mlx5) and a maximum.
    std::uint32_t log2_alignment = 0;
};

/// Memory on the NIC itself: what it holds is sent without a PCIe read, and atomics on it are done
/// without crossing PCIe. There is little of it (DeviceAttributes::max_dm_size). Regions made from
/// it keep it alive. ibv_alloc_dm(3).
class RDMABUF_EXPORT DeviceMemory {
  public:
    /// @param size  in bytes; not 0
    /// @throws Error EINVAL for a size of 0, above max_dm_size, or an alignment beyond the
    /// device's;
    ///         EOPNOTSUPP where the device or its provider has none; ENOMEM when it is used up (it
    ///         is handed out in whole pages on mlx5).
    DeviceMemory(const Context& context, std::size_t size, const DeviceMemoryOptions& options = {});
    /// Imports the device memory with @p handle, which is ibv_dm::handle in the process that
    /// allocated it. That process frees it; destroying or closing this object only ends the import.
    /// ibv_import_dm(3).
    /// @param context  of Context::import_descriptor()
    /// @param size     in bytes, as in the other process: the import does not return it
    /// @throws Error EOPNOTSUPP where the provider cannot import; ENOENT when the device file has
    /// no
    ///         such device memory; EBADF when @p context was closed
    [[nodiscard]] static DeviceMemory import_handle(const Context& context, std::uint32_t handle,
                                                    std::size_t size);
    DeviceMemory(DeviceMemory&&) noexcept = default;
    DeviceMemory& operator=(DeviceMemory&&) noexcept = default;
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() = default;

    /// In bytes, as asked for.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Writes @p source at @p offset. Offset and length must be multiples of 4, the unit devices
    /// copy in, and @p source must be aligned to 4; all is checked before the driver sees it.
    /// @throws Error ERANGE outside the memory (with the numbers), EINVAL for alignment, EOPNOTSUPP
    ///         when the provider has no way to copy, EBADF when this was closed, released or moved
    ///         from, or what the provider says.
    void copy_in(std::size_t offset, std::span<const std::byte> source);
    /// Reads into @p destination from @p offset; as copy_in.
    void copy_out(std::size_t offset, std::span<std::byte> destination) const;

    /// copy_in and copy_out for the data path: the same checks, the errno as a value. EBADF when
    /// this was closed, released or moved from.
    Status try_copy_in(std::size_t offset, std::span<const std::byte> source) noexcept;
    Status try_copy_out(std::size_t offset, std::span<std::byte> destination) const noexcept;

    /// @throws Error EBADF when this was closed, released or moved from.
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("DeviceMemory::context", "DeviceMemory");
    }
    [[nodiscard]] ibv_dm* native() const noexcept { return handle_.get(); }
    /// The caller frees it from now on.
    [[nodiscard]] ibv_dm* release() noexcept { return handle_.release(); }
    /// @throws Error EBUSY while regions made from it exist; it stays allocated.
    void close() { handle_.close(); }

  private:
    friend class DeviceMemoryMR;
    DeviceMemory(detail::DeviceMemoryHandle handle, std::size_t size) noexcept;
    [[nodiscard]] Status check_copy(std::size_t offset, const void* host, std::size_t length,
                                    bool provider_can) const noexcept;
    [[noreturn]] void explain_copy(Status status, const char* function, std::size_t offset,
                                   const void* host, std::size_t length) const;

    detail::DeviceMemoryHandle handle_;
    std::size_t size_;
    /// Whether the provider set the copy functions: some leave them null, or never set at all.
    bool can_copy_in_;
    bool can_copy_out_;
};

struct DeviceMemoryMROptions {
    /// zero_based is supplied. Relaxed ordering is refused: kernels answer it with a bare EINVAL.
    Access access = Access::local_write;
    /// Where the region begins in the device memory, in bytes.
    std::size_t offset = 0;
    /// In bytes; 0 for all from offset on.
    std::size_t length = 0;
};

/// A registered part of device memory. Its addresses, local and remote, count from 0.
/// ibv_reg_dm_mr in ibv_alloc_dm(3).
class RDMABUF_EXPORT DeviceMemoryMR : public Region {
  public:
    /// @throws Error ERANGE for a part outside the memory (with the numbers), EINVAL for flags
    /// other
    ///         than local_write, remote_write, remote_read and remote_atomic, EOPNOTSUPP, ENOMEM.
    DeviceMemoryMR(const ProtectionDomain& pd, const DeviceMemory& memory,
                   const DeviceMemoryMROptions& options = {});
};

} // namespace rdmabuf
