// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_pointer.hpp"

#include <array>
#include <cerrno>

#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf::detail::cuda {

namespace {

/// Queries one attribute of an address. @return false if the query fails, for example because the
/// driver does not support the attribute
template <class Value>
bool get_attribute(const Driver& driver, DevicePointer address, PointerAttribute attribute,
                   Value& value) {
    return driver.functions().pointer_get_attribute(&value, attribute, address) == success;
}

/// Sets the members of @p pointer, whose `address` is queried in one call.
/// @param with_pools  true: the attribute for memory pools is queried too. Drivers before CUDA 11.2
///                    do not support this attribute, and refuse a call that contains it
Result get_attributes(const Driver& driver, Pointer& pointer, bool with_pools) {
    unsigned managed = 0;
    int ordinal = 0;
    void* pool = nullptr;
    std::array attributes{
        PointerAttribute::memory_type, PointerAttribute::is_managed,
        PointerAttribute::context,     PointerAttribute::device_ordinal,
        PointerAttribute::buffer_id,   PointerAttribute::range_start,
        PointerAttribute::range_size,  PointerAttribute::mempool_handle,
    };
    std::array<void*, attributes.size()> values{&pointer.type,       &managed,
                                                &pointer.context,    &ordinal,
                                                &pointer.id,         &pointer.range_start,
                                                &pointer.range_size, &pool};
    const std::size_t count = attributes.size() - (with_pools ? 0 : 1);
    const Result queried = driver.functions().pointer_get_attributes(
        static_cast<unsigned>(count), attributes.data(), values.data(), pointer.address);
    if (queried != success) {
        return queried;
    }
    pointer.managed = managed != 0;
    pointer.pooled = pool != nullptr;
    if (pointer.type == MemoryType::none) {
        return success;
    }
    if (ordinal == no_device_ordinal) {
        pointer.device = ordinal;
        return success;
    }
    // The memory is CUDA's, because the driver has reported its type. A failure of cuDeviceGet is
    // therefore an error, and never means that the memory is not CUDA's.
    driver.check(
        driver.functions().device_get(&pointer.device, ordinal), "cuDeviceGet",
        "the device of the memory at " + hexadecimal(pointer.address) + " cannot be queried");
    return success;
}

/// Returns true if @p address is not memory of CUDA. The driver reports a memory type for all
/// memory of CUDA. For other memory, it refuses this query or reports MemoryType::none.
bool is_foreign(const Driver& driver, DevicePointer address) {
    MemoryType type = MemoryType::none;
    const Result queried =
        driver.functions().pointer_get_attribute(&type, PointerAttribute::memory_type, address);
    return queried == invalid_value || queried == not_initialized ||
           (queried == success && type == MemoryType::none);
}

} // namespace

std::variant<Pointer, Result> query(const Driver& driver, DevicePointer address) {
    Pointer pointer{.address = address};
    Result queried = get_attributes(driver, pointer, true);
    if (queried == invalid_value) {
        pointer = {.address = address};
        queried = get_attributes(driver, pointer, false);
    }
    if (queried == success) {
        return pointer;
    }
    if ((queried == invalid_value || queried == invalid_context) && is_foreign(driver, address)) {
        return Pointer{.address = address};
    }
    return queried;
}

std::optional<Pointer> find_pointer(const Driver& driver, DevicePointer address) {
    const auto found = query(driver, address);
    if (const auto* const refused = std::get_if<Result>(&found)) {
        // A process that has not initialised CUDA has no memory of CUDA, nor has a process that has
        // loaded the stub of the CUDA toolkit.
        if (*refused == not_initialized || *refused == stub_library) {
            return std::nullopt;
        }
        driver.raise(*refused, "cuPointerGetAttributes",
                     "the owner of the memory at " + hexadecimal(address) + " cannot be queried");
    }
    const auto& pointer = std::get<Pointer>(found);
    return pointer.type != MemoryType::none ? std::optional(pointer) : std::nullopt;
}

Pointer require_pointer(const Driver& driver, DevicePointer address) {
    const auto found = query(driver, address);
    if (const auto* const refused = std::get_if<Result>(&found)) {
        driver.raise(*refused, "cuPointerGetAttributes",
                     "the owner of the memory at " + hexadecimal(address) + " cannot be queried");
    }
    if (std::get<Pointer>(found).type == MemoryType::none) {
        throw Error(EFAULT, "cuPointerGetAttributes",
                    hexadecimal(address) +
                        " is not in any live allocation of cuda: pass an address of memory that "
                        "has not been freed");
    }
    return std::get<Pointer>(found);
}

PointerContext::PointerContext(const Driver& driver, const Pointer& pointer)
    : current_(driver, pointer.context != nullptr
                           ? pointer.context
                           : primary_.emplace(driver, pointer.device).get()) {}

std::optional<ExistingContext> ExistingContext::find(const Driver& driver, const Pointer& pointer) {
    const Functions& functions = driver.functions();
    if (pointer.context != nullptr) {
        return std::optional<ExistingContext>(std::in_place, driver, pointer.context);
    }
    unsigned flags = 0;
    int active = 0;
    // Drivers before CUDA 11.0 lack cuDevicePrimaryCtxRelease_v2, so a primary context could not be
    // released.
    if (functions.device_primary_context_release != nullptr &&
        functions.device_primary_context_get_state(pointer.device, &flags, &active) == success &&
        active != 0) {
        return std::optional<ExistingContext>(std::in_place, driver, pointer.device);
    }
    Context current = nullptr;
    if (functions.context_get_current(&current) == success && current != nullptr) {
        return std::optional<ExistingContext>(std::in_place);
    }
    return std::nullopt;
}

ExistingContext::ExistingContext(const Driver& driver, Context context)
    : current_(std::in_place, driver, context) {}

ExistingContext::ExistingContext(const Driver& driver, Device device)
    : primary_(std::in_place, driver, device), current_(std::in_place, driver, primary_->get()) {}

namespace {

/// Returns the mapping that holds @p address. Returns std::nullopt if no mapping holds @p address,
/// or if the driver does not support the attributes that describe a mapping. Needs no current
/// context.
std::optional<Extent> mapping_at(const Driver& driver, DevicePointer address) {
    Extent mapping;
    const bool known =
        get_attribute(driver, address, PointerAttribute::mapping_base_address, mapping.base) &&
        get_attribute(driver, address, PointerAttribute::mapping_size, mapping.length);
    return known && mapping.holds(address, 1) ? std::optional(mapping) : std::nullopt;
}

} // namespace

Extent extent_of(const Driver& driver, const Pointer& pointer) {
    if (pointer.type == MemoryType::device && !pointer.managed) {
        Extent extent;
        driver.check(
            driver.functions().mem_get_address_range(&extent.base, &extent.length, pointer.address),
            "cuMemGetAddressRange",
            "the allocation that holds " + hexadecimal(pointer.address) + " cannot be queried");
        return extent;
    }
    // For host memory that is mapped with cuMemMap, Pointer::range_start and range_size describe
    // the whole reserved range. Therefore query the one mapping that contains the address.
    if (pointer.context == nullptr && !pointer.pooled) {
        if (const auto mapping = mapping_at(driver, pointer.address)) {
            return *mapping;
        }
    }
    // For managed memory and for host memory, `range_start` and `range_size` are the extent. If
    // `range_size` is 0, the extent is unknown.
    if (pointer.range_size == 0) {
        throw Error(EIO, "cuPointerGetAttributes",
                    "the driver reports that the memory at " + hexadecimal(pointer.address) +
                        " is CUDA's, but not its size");
    }
    return {.base = pointer.range_start, .length = pointer.range_size};
}

Extent find_extent(const Driver& driver, const Pointer& pointer) {
    if (pointer.type != MemoryType::device || pointer.managed) {
        return extent_of(driver, pointer);
    }
    if (const auto context = ExistingContext::find(driver, pointer)) {
        return extent_of(driver, pointer);
    }
    if (const auto mapping = mapping_at(driver, pointer.address)) {
        return *mapping;
    }
    throw Error(ENODEV, "cuMemGetAddressRange",
                "the memory at " + hexadecimal(pointer.address) + " of device " +
                    std::to_string(pointer.device) +
                    " has no context, no context is current in this thread, and the device has no "
                    "primary context: make a context current before this call");
}

namespace {

/// Combines two generations into a number that depends on both values and on their order. The
/// result is 0 (unknown) if one of them is 0.
std::uint64_t combine(std::uint64_t first, std::uint64_t next) noexcept {
    if (first == 0 || next == 0) {
        return 0;
    }
    // The sum is mixed by the finaliser of SplitMix64, a bijection of 64-bit numbers in which each
    // input bit affects all output bits.
    std::uint64_t mixed = first * 3 + next + 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 30U) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ mixed >> 27U) * 0x94d049bb133111ebU;
    return mixed ^ mixed >> 31U;
}

} // namespace

Mappings mappings_of(const Driver& driver, const Pointer& pointer, std::size_t length,
                     Extent (*extent_at)(const Driver&, const Pointer&)) {
    Mappings all{.extent = extent_at(driver, pointer), .generation = pointer.id};
    const Extent reserved{.base = pointer.range_start, .length = pointer.range_size};
    while (pointer.mapped() && !all.extent.holds(pointer.address, length)) {
        const std::uintptr_t next = all.extent.base + all.extent.length;
        const auto other = reserved.holds(next, 1) ? find_pointer(driver, next) : std::nullopt;
        if (!other || !other->mapped()) {
            break;
        }
        const Extent extent = extent_at(driver, *other);
        if (!extent.holds(next, 1)) {
            break;
        }
        all.extent.length = extent.base + extent.length - all.extent.base;
        all.generation = combine(all.generation, other->id);
        ++all.count;
    }
    return all;
}

} // namespace rdmabuf::detail::cuda
