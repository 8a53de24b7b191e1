// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_pointer.hpp"

#include <cerrno>
#include <string>
#include <variant>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "rocm/rocm_generations.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {
namespace {

constexpr const char* info_call = "hsa_amd_pointer_info";

/// Queries the attributes of an address.
/// @return the attributes, with PointerType::unknown for memory that does not belong to HSA; the
///         status if the query failed
std::variant<Pointer, Status> query(const Driver& driver, std::uintptr_t address) {
    PointerInfo info;
    const Status asked =
        driver.functions().pointer_info(pointer_to(address), &info, nullptr, nullptr, nullptr);
    if (asked != success) {
        return asked;
    }
    Pointer pointer{.address = address,
                    .type = info.type,
                    .base = reinterpret_cast<std::uintptr_t>(info.agent_base),
                    .length = info.length,
                    .owner = info.owner};
    if (info.type == PointerType::reserved && info.host_base != nullptr) {
        pointer.type = PointerType::hsa; // host memory of an APU, which is allocated
    }
    if (pointer.type == PointerType::mapped || pointer.type == PointerType::reserved) {
        // HSA does not report the start of the mapping. Only the page that contains the address is
        // certain to belong to the mapping.
        pointer.base = address - address % page_size();
        pointer.length = page_size();
        return pointer;
    }
    // Pinned host memory can have two addresses: one for the device and one for the program. This
    // condition is true if @p address is the address for the program.
    if (const auto host = reinterpret_cast<std::uintptr_t>(info.host_base);
        info.type == PointerType::locked && address - host < info.length) {
        pointer.base = host;
    }
    // Pinned memory need not fill its first and its last page. HSA reports these pages as pinned,
    // but their other bytes are ordinary host memory.
    if (info.type == PointerType::locked && address - pointer.base >= info.length) {
        pointer.type = PointerType::unknown;
    }
    return pointer;
}

[[noreturn]] void raise_unanswered(const Driver& driver, Status status, std::uintptr_t address) {
    driver.raise(status, info_call,
                 "the owner of the memory at " + hexadecimal(address) + " cannot be queried");
}

} // namespace

std::optional<Pointer> find_pointer(const Driver& driver, std::uintptr_t address) {
    if (address == 0) {
        return std::nullopt; // The driver refuses the address 0.
    }
    const auto found = query(driver, address);
    if (const auto* const refused = std::get_if<Status>(&found)) {
        if (*refused == not_initialized) {
            return std::nullopt; // A process that has not initialised HSA has no memory of HSA.
        }
        raise_unanswered(driver, *refused, address);
    }
    const auto& pointer = std::get<Pointer>(found);
    if (pointer.type == PointerType::unknown) {
        return std::nullopt;
    }
    if (address - pointer.base >= pointer.length) {
        // The result cannot be std::nullopt, which would mean that the memory is not HSA's: the
        // memory may be device memory.
        throw Error(EIO, info_call,
                    "HSA reports that the memory at " + hexadecimal(address) +
                        " is its own, but in another allocation: " +
                        std::to_string(pointer.length) + " bytes at " + hexadecimal(pointer.base));
    }
    return pointer;
}

Pointer require_pointer(const Driver& driver, std::uintptr_t address) {
    const auto found = query(driver, address);
    if (const auto* const refused = std::get_if<Status>(&found);
        refused != nullptr && address != 0) {
        raise_unanswered(driver, *refused, address);
    }
    const auto* const pointer = std::get_if<Pointer>(&found);
    if (pointer != nullptr && pointer->type != PointerType::unknown) {
        return *pointer;
    }
    throw Error(
        EFAULT, info_call,
        hexadecimal(address) +
            " is not in any live allocation of rocm: pass an address of memory that has not been "
            "freed, and that is not managed (hipMallocManaged), which HSA does not describe");
}

std::optional<Met> meet(const Driver& driver, std::uintptr_t address) {
    Generations& generations = Generations::of_process();
    // The loop needs one iteration if the allocation already has a generation (a number), and two
    // iterations for a new allocation. Further iterations are needed only if other threads free and
    // allocate memory at this address.
    for (;;) {
        const auto known = generations.nearest(address);
        const auto pointer = find_pointer(driver, address);
        if (!pointer) {
            return std::nullopt;
        }
        if (known && known->base == pointer->base) {
            // The allocation had the same generation (number) before and after the query. The
            // allocation was therefore not freed during the query, and the attributes belong to
            // this allocation.
            if (generations.still(*known)) {
                return Met{.pointer = *pointer, .generation = known->generation};
            }
            continue;
        }
        if (known && known->base > pointer->base) {
            // The query found another allocation that contains the base address of `known`. The
            // allocation `known` was therefore freed, even if HSA has not called its deallocation
            // callback yet.
            generations.forget(*known);
        }
        if (!generations.watch(driver, pointer->base)) {
            return Met{.pointer = *pointer};
        }
    }
}

Met require_met(const Driver& driver, std::uintptr_t address) {
    for (;;) {
        if (const auto met = meet(driver, address)) {
            return *met;
        }
        (void)require_pointer(driver, address);
    }
}

MemoryKind kind_of(const Driver& driver, const Pointer& pointer) noexcept {
    if (pointer.type == PointerType::reserved) {
        return MemoryKind::device; // HSA reports a CPU as owner, even if device memory is mapped
    }
    const bool host =
        pointer.type == PointerType::locked || type_of(driver, pointer.owner) == DeviceType::cpu;
    return host ? MemoryKind::pinned_host : MemoryKind::device;
}

} // namespace rdmabuf::detail::rocm
