// SPDX-License-Identifier: BSD-3-Clause
#include "neuron/neuron_driver.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/driver_library.hpp"
#include "common/driver_result.hpp"

namespace rdmabuf::detail::neuron {
namespace {

constexpr std::array library_names{"libnrt.so.1", "/opt/aws/neuron/lib/libnrt.so.1"};
constexpr const char* library_remedy =
    "install aws-neuronx-runtime-lib, on an instance with Neuron devices (Trn1, Inf2 or newer)";
constexpr const char* version_remedy = "update aws-neuronx-runtime-lib";

Functions look_up(SymbolLookup& lookup) {
    Functions all;
    constexpr const char* old = "Neuron 2.0";
    lookup.required("nrt_init", all.init, old);
    lookup.required("nrt_get_total_nc_count", all.get_total_core_count, old);
    lookup.required("nrt_tensor_allocate", all.tensor_allocate, old);
    lookup.required("nrt_tensor_free", all.tensor_free, old);
    lookup.required("nrt_tensor_get_va", all.tensor_get_address, old);
    lookup.required("nrt_tensor_read", all.tensor_read, old);
    lookup.required("nrt_tensor_write", all.tensor_write, old);
    lookup.required("nrt_get_dmabuf_fd", all.get_dmabuf_fd, "2023");
    lookup.optional("nrt_get_dmabuf_fd_v2", all.get_dmabuf_fd_v2);
    lookup.optional("nrt_get_version", all.get_version);
    return all;
}

/// Returns a remedy for @p status that fits all functions of the runtime, or null if there is none.
const char* remedy_for(NrtStatus status) noexcept {
    switch (status) {
        case uninitialized:
            return "call nrt_init() first";
        case closed:
            return "nrt_close() was called, and ended the runtime in this process";
        case load_not_enough_cores:
            return "other processes use the NeuronCores, or NEURON_RT_VISIBLE_CORES excludes them";
        default:
            return nullptr;
    }
}

std::string range(std::uint64_t address, std::size_t length) {
    return std::to_string(length) + " bytes at " + hexadecimal(address);
}

/// Returns the likely cause of a refused export, as text for the error. The text is empty if @p
/// status suggests no cause.
std::string export_remedy(NrtStatus status, const std::string& version) {
    if (status != invalid) {
        return "";
    }
    if (version.starts_with("2.32.31.")) {
        return "; libnrt " + version +
               " returns this for every export, without calling the kernel: use another version";
    }
    return "; the address must be that of a live tensor on a device, from nrt_tensor_get_va(); "
           "without nrt_get_dmabuf_fd_v2, it must be the first address of an allocation";
}

} // namespace

DriverDescription<Functions> Driver::description() {
    return {library_names, "Neuron runtime", library_remedy, version_remedy, look_up};
}

std::string Driver::version() const {
    Version version{};
    if (functions().get_version == nullptr ||
        functions().get_version(&version, sizeof(version)) != success) {
        return {};
    }
    return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
           std::to_string(version.patch) + "." + std::to_string(version.maintenance);
}

ExportedMemory Driver::export_memory(std::uint64_t address, std::size_t length) const {
    // nrt_get_dmabuf_fd_v2 returns the offset of the address in the dma-buf. nrt_get_dmabuf_fd
    // returns no offset: its dma-buf begins at the address.
    const bool tells_offset = functions().get_dmabuf_fd_v2 != nullptr;
    const char* const call = tells_offset ? "nrt_get_dmabuf_fd_v2" : "nrt_get_dmabuf_fd";
    const std::size_t in_page = address % page_size();
    if (!tells_offset && in_page != 0) {
        throw Error(EINVAL, call,
                    range(address, length) + ": " + std::to_string(in_page) +
                        " bytes into a page; this runtime can export only from the first address "
                        "of an allocation, because it does not have nrt_get_dmabuf_fd_v2: update "
                        "aws-neuronx-runtime-lib, or add the whole allocation");
    }
    int raw = -1;
    std::uint64_t offset = 0;
    const NrtStatus got = tells_offset
                              ? functions().get_dmabuf_fd_v2(address, length, &raw, &offset)
                              : functions().get_dmabuf_fd(address, length, &raw);
    if (got != success) {
        raise(got, call,
              range(address, length) + " were requested" + export_remedy(got, version()));
    }
    ExportedMemory exported{.fd = take_descriptor(raw, call), .offset = offset};
    if (offset % page_size() != in_page) {
        throw Error(EIO, call,
                    range(address, length) + " begin " + std::to_string(in_page) +
                        " bytes into a page, but the runtime reports offset " +
                        std::to_string(offset) +
                        " in the dma-buf, which is another position in a page: a NIC could not use "
                        "the address as the iova");
    }
    check_holds(exported, length, call, range(address, length));
    return exported;
}

void Driver::raise(NrtStatus status, const char* function, std::string_view hint) const {
    DriverFailure{name_of(status), errno_of(status), remedy_for(status)}.raise(function, hint);
}

std::string name_of(NrtStatus status) {
    constexpr std::array<StatusName, 11> names{{
        {failure, "NRT_FAILURE"},
        {invalid, "NRT_INVALID"},
        {invalid_handle, "NRT_INVALID_HANDLE"},
        {resource, "NRT_RESOURCE"},
        {timeout, "NRT_TIMEOUT"},
        {hardware_error, "NRT_HW_ERROR"},
        {queue_full, "NRT_QUEUE_FULL"},
        {load_not_enough_cores, "NRT_LOAD_NOT_ENOUGH_NC"},
        {host_memory_allocation, "NRT_FAIL_HOST_MEM_ALLOC"},
        {uninitialized, "NRT_UNINITIALIZED"},
        {closed, "NRT_CLOSED"},
    }};
    return status_name(status, names);
}

int errno_of(NrtStatus status) noexcept {
    switch (status) {
        case invalid:
        case invalid_handle:
            return EINVAL;
        case resource:
        case host_memory_allocation:
            return ENOMEM;
        case timeout:
            return ETIMEDOUT;
        case load_not_enough_cores:
        case uninitialized:
        case closed:
            return ENODEV;
        default:
            return EIO;
    }
}

} // namespace rdmabuf::detail::neuron
