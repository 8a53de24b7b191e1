// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "common/exported_memory.hpp"
#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// Holds the attributes of an address, as the driver reports them.
struct Pointer {
    DevicePointer address = 0;
    MemoryType type = MemoryType::none;
    bool managed = false;
    /// True for memory from a memory pool (cuMemAllocAsync).
    bool pooled = false;
    /// The context of the memory. Null for mapped memory (cuMemMap) and for memory from a pool.
    Context context = nullptr;
    /// no_device_ordinal for host memory that belongs to no device.
    Device device = 0;
    /// Identifies the allocation. No later allocation in this process gets the same number.
    std::uint64_t id = 0;
    /// Start address of the allocation; for mapped memory (cuMemMap), of the reserved range that
    /// contains the mapping.
    DevicePointer range_start = 0;
    /// Size in bytes of the allocation or of the reserved range that begins at range_start.
    std::size_t range_size = 0;

    /// True for device memory that is mapped into a reserved range (cuMemMap). A reserved range can
    /// contain several adjacent mappings.
    [[nodiscard]] bool mapped() const noexcept {
        return type == MemoryType::device && context == nullptr && !managed && !pooled;
    }
};

/// Queries the attributes of @p address. Can be called in any thread, and needs no current context.
/// @return the attributes, with MemoryType::none for memory that is not CUDA's; the driver's result
///         if the query failed
/// @throws Error if the memory is CUDA's, but its device cannot be queried
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, DevicePointer address);

/// Returns the attributes of @p address, or std::nullopt if the memory is not CUDA's, if this
/// process has not initialised CUDA, or if it has loaded the stub of the CUDA toolkit.
/// @throws Error if the query failed
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, DevicePointer address);
/// Returns the attributes of @p address, as find_pointer() does, but throws if the memory is not
/// CUDA's.
/// @throws Error EFAULT for memory that is not CUDA's, ENODEV if CUDA is not initialised in this
///         process, or the error of the failed query
[[nodiscard]] Pointer require_pointer(const Driver& driver, DevicePointer address);

/// Makes the context of the memory at a pointer current while this object exists. If the memory has
/// no context, the primary context of the device is used, and is created if it does not exist.
class PointerContext {
  public:
    PointerContext(const Driver& driver, const Pointer& pointer);

  private:
    std::optional<PrimaryContext> primary_;
    CurrentContext current_;
};

/// Makes a CUDA context that already exists current while this object exists; never creates a
/// context. The driver reports the extent of device memory only while a context is current.
class ExistingContext {
  public:
    /// Makes the context of the memory current. If the memory has no context, makes the primary
    /// context of the device current, if this context exists. If it does not, the current context
    /// of the calling thread stays current.
    /// @return std::nullopt if none of these contexts exists
    [[nodiscard]] static std::optional<ExistingContext> find(const Driver& driver,
                                                             const Pointer& pointer);

    /// The constructors are public only because std::optional calls them. Callers must use find().
    ExistingContext() = default;
    ExistingContext(const Driver& driver, Context context);
    ExistingContext(const Driver& driver, Device device);

  private:
    std::optional<PrimaryContext> primary_;
    std::optional<CurrentContext> current_;
};

/// Returns the extent of the memory at a pointer, for memory of any kind. For mapped memory
/// (cuMemMap), this is the one mapping that holds the address. For device memory that is not
/// managed, a CUDA context must be current.
/// @throws Error with the errno for the driver's result; EIO if no memory is at the address any
///         more, or if the size is unknown
[[nodiscard]] Extent extent_of(const Driver& driver, const Pointer& pointer);
/// Returns the extent of the memory at a pointer. Unlike extent_of(), needs no current context.
/// Never creates a context.
/// @throws Error with the errors of extent_of(), or ENODEV if the driver reports the extent only
///         while a context is current, and ExistingContext::find() finds no context
[[nodiscard]] Extent find_extent(const Driver& driver, const Pointer& pointer);

/// Describes the memory at a pointer: one allocation or, for mapped memory (cuMemMap), the mapping
/// that contains the address, and as many of the adjacent mappings after it as the range needs. See
/// mappings_of().
struct Mappings {
    Extent extent;
    /// Combines the ids of all mappings, in their order; 0 if an id is unknown.
    std::uint64_t generation = 0;
    std::size_t count = 1;
};
/// Returns the memory at a pointer. For mapped memory (cuMemMap), the driver reports only the
/// mapping that contains the address. Therefore this function also adds the mappings that follow in
/// the same reserved range, until Mappings::extent contains the @p length bytes at the pointer, or
/// until a gap follows. Separate allocations of cuMemAlloc are not combined, even if they are
/// adjacent.
/// @param extent_at  extent_of() or find_extent()
/// @throws Error with the errors of @p extent_at and find_pointer()
[[nodiscard]] Mappings mappings_of(const Driver& driver, const Pointer& pointer, std::size_t length,
                                   Extent (*extent_at)(const Driver&, const Pointer&));

} // namespace rdmabuf::detail::cuda
