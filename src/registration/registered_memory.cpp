// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <memory>
#include <optional>
#include <string>

#include <rdmabuf/error.hpp>
#include <rdmabuf/registered_memory.hpp>

#include "memory/exporter_calls.hpp"

namespace rdmabuf {

const char* to_string(RegistrationState state) noexcept {
    switch (state) {
        case RegistrationState::registered:
            return "registered";
        case RegistrationState::revoked:
            return "revoked";
        case RegistrationState::closed:
            return "closed";
    }
    return "unknown";
}

bool may_mean_revocation(const WorkCompletion& completion) noexcept {
    switch (completion.status) {
        case IBV_WC_LOC_PROT_ERR:
        case IBV_WC_LOC_ACCESS_ERR:
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_OP_ERR:
            return true;
        default:
            return false;
    }
}

bool may_mean_revocation(const AsyncEvent& event) noexcept {
    switch (event.type) {
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_DEVICE_FATAL:
            return true;
        default:
            return false;
    }
}

void RegisteredMemory::mark_revoked() noexcept {
    if (set_ != nullptr) {
        auto expected = RegistrationState::registered;
        set_->state.compare_exchange_strong(expected, RegistrationState::revoked,
                                            std::memory_order_relaxed);
    }
}

RegistrationState RegisteredMemory::verify() {
    // Host memory is not verified, because host memory stays pinned until it is deregistered. If
    // the exporter no longer finds the host memory, the memory can still exist: the program may
    // have unregistered the memory from the driver of the GPU.
    if (state() != RegistrationState::registered || !set_->allocation ||
        path() == RegistrationPath::host) {
        return state();
    }
    const std::shared_ptr<const Exporter> exporter = set_->source.lock();
    if (exporter == nullptr) {
        throw Error(ENOENT, "RegisteredMemory::verify",
                    "the exporter '" + set_->exporter +
                        "' was destroyed: keep the exporter, or a Resolver that has it, until the "
                        "registration is closed");
    }
    const std::optional<Allocation> now =
        detail::find_range(*exporter, set_->address, set_->length);
    const std::uint64_t generation = set_->allocation->generation;
    const bool replaced = now && now->generation != generation && generation != 0;
    if (!now || replaced) {
        mark_revoked();
    }
    return state();
}

void RegisteredMemory::close() {
    if (set_ == nullptr) {
        return;
    }
    std::optional<Error> first;
    for (detail::AnyRegion& region : set_->regions) {
        try {
            region.close();
        } catch (const Error& error) {
            if (!first) {
                first = error;
            }
        }
    }
    if (first) {
        throw Error(*first);
    }
    set_->state.store(RegistrationState::closed, std::memory_order_relaxed);
}

void RegisteredMemory::refuse(const char* function) const {
    if (state() == RegistrationState::revoked) {
        throw Error(
            ENODEV, function,
            "the memory was revoked, and the keys are invalid: close() the registration, and "
            "register the memory again");
    }
    throw Error(EBADF, function, "the registration was closed or released");
}

} // namespace rdmabuf
