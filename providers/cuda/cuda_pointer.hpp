// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "common/exported_memory.hpp"
#include "cuda/cuda_driver.hpp"

namespace rdmabuf::detail::cuda {

/// What the driver says of an address of its own.
struct Pointer {
    DevicePointer address = 0;
    MemoryType type = MemoryType::none;
    bool managed = false;
    /// From a memory pool: cuMemAllocAsync.
    bool pooled = false;
    /// Null for mapped memory (cuMemMap) and that of pools.
    Context context = nullptr;
    Device device = 0;
    /// Unique in this process: no allocation is given that of an earlier one.
    std::uint64_t id = 0;
    /// The allocation or, for mapped memory, the range that was reserved for mappings.
    DevicePointer range_start = 0;
    std::size_t range_size = 0;

    /// Whether it was mapped into a reserved range (cuMemMap), where neighbours may belong to it.
    [[nodiscard]] bool mapped() const noexcept {
        return type == MemoryType::device && context == nullptr && !managed && !pooled;
    }
};

/// Queries the attributes of @p address, in any thread and without a current context.
/// @return a pointer of MemoryType::none for memory that is not CUDA's, or the result with which
///         the driver failed to answer
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, DevicePointer address);

/// The pointer at @p address. None for memory that is not CUDA's, and in a process that has not
/// initialised CUDA. @throws Error if the driver cannot say
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, DevicePointer address);
/// @throws Error EFAULT for memory that is not CUDA's, ENODEV if CUDA is not initialised in this
///         process, and as find_pointer()
[[nodiscard]] Pointer require_pointer(const Driver& driver, DevicePointer address);

/// Makes the context of memory current for as long as this object lives. Creates the primary
/// context of the device if the memory has no context and the primary context does not exist.
class PointerContext {
  public:
    PointerContext(const Driver& driver, const Pointer& pointer);

  private:
    /// For memory that has no context: the primary context of its device.
    std::optional<PrimaryContext> primary_;
    CurrentContext current_;
};

/// Makes a context in which the driver describes memory current for as long as this object lives.
/// Never creates a context.
class ExistingContext {
  public:
    /// Uses the context of the memory. For memory without a context it uses the primary context of
    /// the device if that exists, or else the calling thread's current context. @return none where
    /// neither exists
    [[nodiscard]] static std::optional<ExistingContext> find(const Driver& driver,
                                                             const Pointer& pointer);

    /// Use find().
    ExistingContext() = default;
    ExistingContext(const Driver& driver, Context context);
    ExistingContext(const Driver& driver, Device device);

  private:
    std::optional<PrimaryContext> primary_;
    std::optional<CurrentContext> current_;
};

/// The extent of the allocation, or of the one mapping of a reserved range, that holds @p address.
/// None where nothing is mapped. A context of the pointer has to be current.
[[nodiscard]] std::optional<Extent> extent_at(const Driver& driver, DevicePointer address);
/// The extent of the memory that a pointer belongs to, of any kind. A context of the pointer has to
/// be current.
[[nodiscard]] std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer);
/// As extent_of(), without a current context, and without creating one.
/// @throws Error ENODEV if the driver describes the memory in a context only, and none exists
[[nodiscard]] std::optional<Extent> find_extent(const Driver& driver, const Pointer& pointer);

} // namespace rdmabuf::detail::cuda
