// SPDX-License-Identifier: BSD-3-Clause
#include "registration/registration_request.hpp"

#include <cerrno>
#include <limits>

#include <rdmabuf/dma_handle.hpp>
#include <rdmabuf/error.hpp>

#include "base/text.hpp"

namespace rdmabuf::detail {
namespace {

void check_range(const RegistrationRequest& request) {
    if (request.pds.empty()) {
        throw Error(EINVAL, request.function, "no protection domain to register on");
    }
    if (request.length == 0) {
        throw Error(EINVAL, request.function, "a length of 0: there is nothing to register");
    }
    if (request.length > std::numeric_limits<std::uintptr_t>::max() - request.address) {
        throw Error(EINVAL, request.function, request.describe() + " exceed the address space");
    }
}

[[noreturn]] void conflict(const RegistrationRequest& request, const std::string& text) {
    throw Error(EINVAL, request.function, "options contradict each other: " + text);
}

void check_dma_handle(const RegistrationRequest& request) {
    const DmaHandle* const handle = request.options.dma_handle;
    if (handle == nullptr) {
        return;
    }
    if (request.options.paths.has(RegistrationPath::dmabuf_data_direct)) {
        conflict(request,
                 "dmabuf_data_direct does not support a DMA handle; leave out one of the two");
    }
    if (request.options.paths.has(RegistrationPath::on_demand)) {
        conflict(request, "on_demand does not support a DMA handle; leave out one of the two");
    }
    for (const ProtectionDomain& pd : request.pds) {
        if (!(pd.context() == handle->context())) {
            conflict(request, "the DMA handle of " + handle->context().device_name() +
                                  " and a protection domain of " + pd.context().device_name() +
                                  " have different contexts; create both with the same Context");
        }
    }
}

void check_options(const RegistrationRequest& request) {
    const RegistrationOptions& options = request.options;
    if (options.device_memory && options.paths.has(RegistrationPath::host)) {
        conflict(request,
                 "device_memory is set, and the path host is listed; leave out one of the two");
    }
    if (options.mapping && !options.paths.empty() && !options.paths.has(RegistrationPath::dmabuf) &&
        !options.paths.has(RegistrationPath::dmabuf_data_direct)) {
        conflict(request, "a mapping is set, but no dma-buf path is listed");
    }
    check_dma_handle(request);
}

} // namespace

Access RegistrationRequest::access() const noexcept {
    return options.relaxed_ordering ? options.access | Access::relaxed_ordering : options.access;
}

std::uint64_t RegistrationRequest::iova() const noexcept {
    return options.iova.value_or(has(options.access, Access::zero_based) ? 0 : address);
}

std::string RegistrationRequest::describe() const {
    return std::to_string(length) + " bytes at " + hexadecimal(address);
}

void check_request(const RegistrationRequest& request) {
    check_range(request);
    check_options(request);
    if (request.length > std::numeric_limits<std::uint64_t>::max() - request.iova()) {
        throw Error(EINVAL, request.function,
                    "iova " + hexadecimal(request.iova()) + " + length " +
                        std::to_string(request.length) + " overflows 64 bits");
    }
}

} // namespace rdmabuf::detail
