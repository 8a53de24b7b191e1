// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/region.hpp>

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
    /// The alignment of the allocation in the device memory, as a base-2 logarithm: 12 means 4096
    /// bytes. The device limits the alignment to a minimum (64 bytes on mlx5) and a maximum.
    std::uint32_t log2_alignment = 0;
};

/// Memory on the NIC. The NIC sends data from this memory, and executes atomics in it, without PCIe
/// transactions. The memory is small: see DeviceAttributes::max_dm_size(). A DeviceMemoryMR keeps
/// the memory alive. Objects can be moved but not copied. See ibv_alloc_dm(3).
class RDMABUF_EXPORT DeviceMemory {
  public:
    /// Allocates device memory.
    /// @param size  in bytes; not 0
    /// @throws Error
    ///   - EINVAL: a size of 0 or above max_dm_size, or an alignment that the device does not
    ///     support
    ///   - EOPNOTSUPP: the device or its provider has no device memory
    ///   - ENOMEM: not enough free device memory (mlx5 allocates whole pages)
    ///   - EBADF: @p context was closed, released or moved from
    DeviceMemory(const Context& context, std::size_t size, const DeviceMemoryOptions& options = {});
    /// Imports device memory that another process has allocated. The other process frees the
    /// memory; destroying or closing this object only ends the import. See ibv_import_dm(3).
    /// @param context  the result of Context::import_descriptor()
    /// @param handle   ibv_dm::handle in the other process
    /// @param size     the size of the memory in bytes in the other process, which ibv_import_dm()
    ///                 does not return
    /// @throws Error
    ///   - EOPNOTSUPP: the provider cannot import device memory
    ///   - ENOENT: the device file has no device memory with this handle
    ///   - EBADF: @p context was closed, released or moved from
    [[nodiscard]] static DeviceMemory import_handle(const Context& context, std::uint32_t handle,
                                                    std::size_t size);
    /// Takes ownership of device memory that other code has allocated on @p context.
    /// @param size  the size in bytes of the allocation, which ibv_dm does not contain
    [[nodiscard]] static DeviceMemory adopt(const Context& context, ibv_dm* memory,
                                            std::size_t size);
    /// Returns an object that uses @p memory but does not own it. For a null pointer, the result is
    /// like an object that was closed.
    /// @param size  as for adopt()
    [[nodiscard]] static DeviceMemory borrow(ibv_dm* memory, std::size_t size);
    DeviceMemory(DeviceMemory&&) noexcept = default;
    DeviceMemory& operator=(DeviceMemory&&) noexcept = default;
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory() = default;

    /// Returns the size in bytes that the program passed when this object was created.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }

    /// Copies @p source from host memory to the device memory at byte @p offset. libmlx5 copies
    /// words of 4 bytes, so this library requires that @p offset, the length and the host address
    /// are multiples of 4.
    /// @throws Error
    ///   - ERANGE: the bytes are not inside the device memory
    ///   - EINVAL: offset, length or host address is not a multiple of 4
    ///   - EOPNOTSUPP: the provider has no function to copy to device memory
    ///   - EBADF: this object was closed, released or moved from
    ///   - other errno values of ibv_memcpy_to_dm()
    void copy_in(std::size_t offset, std::span<const std::byte> source);
    /// Copies the bytes of the device memory at byte @p offset to @p destination in host memory.
    /// The alignment requirements and the errors are those of copy_in().
    void copy_out(std::size_t offset, std::span<std::byte> destination) const;

    /// Copies as copy_in() does, but returns the errno value instead of throwing an Error. Intended
    /// for the data path.
    Status try_copy_in(std::size_t offset, std::span<const std::byte> source) noexcept;
    /// Copies as copy_out() does, but returns the errno value instead of throwing an Error.
    /// Intended for the data path.
    Status try_copy_out(std::size_t offset, std::span<std::byte> destination) const noexcept;

    /// Returns the context on which the memory was allocated.
    /// @throws Error EBADF if this object was closed, released or moved from
    [[nodiscard]] const Context& context() const {
        return handle_.parent<0>("DeviceMemory::context", "DeviceMemory");
    }
    [[nodiscard]] ibv_dm* native() const noexcept { return handle_.get(); }
    /// Transfers ownership to the caller, which must free the returned memory; for memory of
    /// import_handle(), call ibv_unimport_dm() instead. If the memory was borrowed, only its owner
    /// may free it.
    [[nodiscard]] ibv_dm* release() noexcept { return handle_.release(); }
    /// Frees the device memory.
    /// @throws Error EBUSY if a DeviceMemoryMR still uses the memory; the memory then stays
    ///         allocated
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
    /// True if ibv_dm::memcpy_to_dm points to the code of a function, so that copy_in() can call
    /// it. The pointer is null for some kinds of device memory of mlx5, and uninitialised on mana;
    /// the constructor detects both cases.
    bool can_copy_in_;
    /// The same as can_copy_in_, for ibv_dm::memcpy_from_dm and copy_out().
    bool can_copy_out_;
};

struct DeviceMemoryMROptions {
    /// The access flags: a combination of local_write, remote_write, remote_read and remote_atomic.
    /// The constructor of DeviceMemoryMR adds zero_based.
    Access access = Access::local_write;
    /// The byte offset of the region in the device memory.
    std::size_t offset = 0;
    /// The length of the region in bytes; 0 for all bytes from `offset` to the end of the device
    /// memory.
    std::size_t length = 0;
};

/// A memory region for a part of a DeviceMemory. The region keeps the device memory alive. Work
/// requests and peers address a byte by its offset from the first byte of the region. See
/// ibv_reg_dm_mr() in ibv_alloc_dm(3).
class RDMABUF_EXPORT DeviceMemoryMR : public Region {
  public:
    /// Registers a part of @p memory.
    /// @throws Error
    ///   - ERANGE: the part is not inside the device memory
    ///   - EINVAL: `offset` is the end of the device memory, so that the length is 0; an access
    ///     flag other than local_write, remote_write, remote_read, remote_atomic and zero_based;
    ///     remote_write or remote_atomic without local_write
    ///   - EOPNOTSUPP: the provider cannot register device memory
    ///   - EBADF: @p pd or @p memory was closed, released or moved from
    ///   - ENOMEM: there is not enough memory for the region
    DeviceMemoryMR(const ProtectionDomain& pd, const DeviceMemory& memory,
                   const DeviceMemoryMROptions& options = {});
};

} // namespace rdmabuf
