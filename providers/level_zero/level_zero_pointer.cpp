// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_pointer.hpp"

#include <cerrno>

#include <rdmabuf/detail/hexadecimal.hpp>
#include <rdmabuf/error.hpp>

namespace rdmabuf::detail::level_zero {

std::variant<Pointer, Result> query(const Driver& driver, Context context, std::uintptr_t address) {
    AllocationProperties properties;
    Device device = nullptr;
    const Result asked = driver.functions().mem_get_alloc_properties(
        context, reinterpret_cast<const void*>(address), &properties, &device);
    if (asked != success) {
        return asked;
    }
    return Pointer{.address = address,
                   .context = context,
                   .type = properties.type,
                   .id = properties.id,
                   .page_size = static_cast<std::size_t>(properties.page_size),
                   .device = device};
}

std::optional<Pointer> Contexts::find_in(std::span<const Context> contexts,
                                         std::uintptr_t address) const {
    for (Context context : contexts) {
        const auto answer = query(*driver_, context, address);
        const auto* const pointer = std::get_if<Pointer>(&answer);
        if (pointer != nullptr && pointer->type != MemoryType::unknown) {
            return *pointer;
        }
    }
    return std::nullopt;
}

std::optional<Pointer> Contexts::find(std::uintptr_t address) const {
    if (auto found = find_in(named_, address)) {
        return found;
    }
    return find_in(driver_->contexts(), address);
}

Pointer Contexts::require(std::uintptr_t address) const {
    if (auto found = find(address)) {
        return *found;
    }
    if (named_.empty() && driver_->contexts().empty()) {
        Driver::raise(uninitialized, "zeMemGetAllocProperties",
                      "whose memory " + hexadecimal(address) + " is cannot be asked");
    }
    throw Error(EFAULT, "zeMemGetAllocProperties",
                hexadecimal(address) +
                    " lies in no live allocation of level_zero: pass an address of memory that has "
                    "not been freed, and name the context that it was allocated in "
                    "(LevelZeroOptions::contexts)");
}

std::optional<Extent> extent_of(const Driver& driver, const Pointer& pointer) {
    void* base = nullptr;
    Extent extent;
    const Result asked = driver.functions().mem_get_address_range(
        pointer.context, reinterpret_cast<const void*>(pointer.address), &base, &extent.length);
    if (asked == invalid_argument || asked == address_not_found) {
        return std::nullopt;
    }
    Driver::check(
        asked, "zeMemGetAddressRange",
        "the allocation that holds " + hexadecimal(pointer.address) + " cannot be asked for");
    extent.base = reinterpret_cast<std::uintptr_t>(base);
    return extent;
}

} // namespace rdmabuf::detail::level_zero
