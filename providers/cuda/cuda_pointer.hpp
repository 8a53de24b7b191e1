// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "common/extent.hpp"
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

/// Asks for @p address, in any thread and without a current context. What is not CUDA's is a
/// pointer of no memory type, or the driver's refusal to say.
[[nodiscard]] std::variant<Pointer, Result> query(const Driver& driver, DevicePointer address);

/// The pointer at @p address, if it is CUDA's.
[[nodiscard]] std::optional<Pointer> find_pointer(const Driver& driver, DevicePointer address);
/// @throws Error EFAULT when it is not, ENODEV when CUDA is not initialised in this process
[[nodiscard]] Pointer require_pointer(const Driver& driver, DevicePointer address);

/// The context of memory, current for as long as this lives.
class PointerContext {
  public:
    PointerContext(const Driver& driver, const Pointer& pointer);

  private:
    /// Memory without a context is reached in its device's primary one.
    std::optional<PrimaryContext> primary_;
    CurrentContext current_;
};

/// What the driver has behind an address: the allocation, or one mapping of a reserved range. None
/// where nothing is. The pointer's context is current.
[[nodiscard]] std::optional<Extent> extent_at(const Driver& driver, DevicePointer address);
/// The allocation that a pointer belongs to, of whatever kind. The pointer's context is current.
[[nodiscard]] std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer);

} // namespace rdmabuf::detail::cuda
