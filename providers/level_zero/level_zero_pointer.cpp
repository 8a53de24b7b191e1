// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_pointer.hpp"

#include <cerrno>
#include <string>

#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf::detail::level_zero {

namespace {

/// Returns true if the result means that the memory does not belong to the driver. The driver of an
/// NPU returns not_available. For address 0, drivers return invalid_null_pointer.
bool is_foreign(Result result) noexcept {
    return result == not_available || result == invalid_argument || result == address_not_found ||
           result == invalid_null_pointer || result == uninitialized;
}

} // namespace

std::variant<Pointer, Result> query(const Driver& driver, Context context, std::uintptr_t address) {
    AllocationProperties properties;
    Device device = nullptr;
    const Result asked = driver.functions().mem_get_alloc_properties(
        context, reinterpret_cast<const void*>(address), &properties, &device);
    if (is_foreign(asked)) {
        return Pointer{.address = address};
    }
    if (asked != success) {
        return asked;
    }
    return Pointer{.address = address,
                   .context = context,
                   .type = properties.type,
                   .id = properties.id,
                   .device = device};
}

std::optional<Pointer> Contexts::find_in(std::span<const Context> contexts, std::uintptr_t address,
                                         Result& failed) const {
    for (Context context : contexts) {
        const auto answer = query(*driver_, context, address);
        if (const auto* const result = std::get_if<Result>(&answer)) {
            failed = failed == success ? *result : failed;
            continue;
        }
        const auto& pointer = std::get<Pointer>(answer);
        if (pointer.type != MemoryType::unknown) {
            return pointer;
        }
    }
    return std::nullopt;
}

std::optional<Pointer> Contexts::find(std::uintptr_t address) const {
    Result failed = success;
    if (auto found = find_in(named_, address, failed)) {
        return found;
    }
    const OwnContextList own = driver_->contexts();
    if (auto found = find_in(own.contexts, address, failed)) {
        return found;
    }
    const std::string hint =
        "the owner of the memory at " + hexadecimal(address) + " cannot be queried";
    Driver::check(failed, "zeMemGetAllocProperties", hint);
    Driver::check(own.failed, own.function, hint);
    return std::nullopt;
}

Pointer Contexts::require(std::uintptr_t address) const {
    if (auto found = find(address)) {
        return *found;
    }
    if (named_.empty() && driver_->contexts().contexts.empty()) {
        Driver::raise(uninitialized, "zeMemGetAllocProperties",
                      "the owner of the memory at " + hexadecimal(address) + " cannot be queried");
    }
    throw Error(EFAULT, "zeMemGetAllocProperties",
                hexadecimal(address) +
                    " is not in any live allocation of level_zero: pass an address of memory that "
                    "has not been freed, and add the context in which it was allocated to "
                    "LevelZeroOptions::contexts");
}

bool is_mapped(const Driver& driver, const Pointer& pointer) {
    std::uint32_t access = 0;
    std::size_t reserved = 0;
    // The query succeeds only for addresses that zeVirtualMemReserve has reserved.
    const Result asked = driver.functions().virtual_mem_get_access_attribute(
        pointer.context, reinterpret_cast<const void*>(pointer.address), 1, &access, &reserved);
    if (is_foreign(asked) || asked == unsupported_feature) {
        return false;
    }
    Driver::check(asked, "zeVirtualMemGetAccessAttribute",
                  "the mapping at " + hexadecimal(pointer.address) + " cannot be queried");
    return true;
}

Extent extent_of(const Driver& driver, const Pointer& pointer) {
    void* base = nullptr;
    Extent extent;
    Driver::check(
        driver.functions().mem_get_address_range(
            pointer.context, reinterpret_cast<const void*>(pointer.address), &base, &extent.length),
        "zeMemGetAddressRange",
        "the allocation that holds " + hexadecimal(pointer.address) + " cannot be queried");
    extent.base = reinterpret_cast<std::uintptr_t>(base);
    return extent;
}

} // namespace rdmabuf::detail::level_zero
