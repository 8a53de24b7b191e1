// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_pointer.hpp"

#include <array>
#include <cerrno>

#include <rdmabuf/detail/hexadecimal.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail::cuda {

std::variant<Pointer, Result> query(const Driver& driver, DevicePointer address) {
    Pointer pointer{.address = address};
    unsigned managed = 0;
    int ordinal = 0;
    void* pool = nullptr;
    std::array attributes{
        PointerAttribute::memory_type,    PointerAttribute::is_managed,
        PointerAttribute::mempool_handle, PointerAttribute::context,
        PointerAttribute::device_ordinal, PointerAttribute::buffer_id,
        PointerAttribute::range_start,    PointerAttribute::range_size,
    };
    std::array<void*, attributes.size()> values{
        &pointer.type,        &managed,           &pool, &pointer.context, &ordinal, &pointer.id,
        &pointer.range_start, &pointer.range_size};
    const Functions& functions = driver.functions();
    const Result asked = functions.pointer_get_attributes(
        static_cast<unsigned>(attributes.size()), attributes.data(), values.data(), address);
    if (asked != success) {
        return asked;
    }
    pointer.managed = managed != 0;
    pointer.pooled = pool != nullptr;
    if (pointer.type != MemoryType::none) {
        if (const Result got = functions.device_get(&pointer.device, ordinal); got != success) {
            return got;
        }
    }
    return pointer;
}

std::optional<Pointer> find_pointer(const Driver& driver, DevicePointer address) {
    const auto found = query(driver, address);
    const auto* const pointer = std::get_if<Pointer>(&found);
    return pointer != nullptr && pointer->type != MemoryType::none ? std::optional(*pointer)
                                                                   : std::nullopt;
}

Pointer require_pointer(const Driver& driver, DevicePointer address) {
    const auto found = query(driver, address);
    const auto* const refused = std::get_if<Result>(&found);
    if (refused != nullptr && errno_of(*refused) == ENODEV) {
        driver.raise(*refused, "cuPointerGetAttributes",
                     "whose memory " + hexadecimal(address) + " is cannot be asked");
    }
    if (refused != nullptr || std::get<Pointer>(found).type == MemoryType::none) {
        throw Error(EFAULT, "cuPointerGetAttributes",
                    hexadecimal(address) +
                        " lies in no live allocation of cuda: pass an address of memory that has "
                        "not been freed" +
                        (refused != nullptr ? " (" + driver.name_of(*refused) + ")" : ""));
    }
    return std::get<Pointer>(found);
}

PointerContext::PointerContext(const Driver& driver, const Pointer& pointer)
    : current_(driver, pointer.context != nullptr
                           ? pointer.context
                           : primary_.emplace(driver, pointer.device).get()) {}

std::optional<Extent> extent_at(const Driver& driver, DevicePointer address) {
    Extent extent;
    const Result asked =
        driver.functions().mem_get_address_range(&extent.base, &extent.length, address);
    if (asked == invalid_value || asked == not_found) {
        return std::nullopt;
    }
    driver.check(asked, "cuMemGetAddressRange",
                 "the allocation that holds " + hexadecimal(address) + " cannot be asked for");
    return extent;
}

std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer) {
    if (pointer.type == MemoryType::device && !pointer.managed) {
        return extent_at(driver, pointer.address);
    }
    // cuMemGetAddressRange is for cuMemAlloc and cuMemMap; of other memory the pointer tells.
    if (pointer.range_size == 0) {
        return std::nullopt;
    }
    return Extent{.base = pointer.range_start, .length = pointer.range_size};
}

} // namespace rdmabuf::detail::cuda
