// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_driver.hpp"

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <mutex>
#include <utility>

#include "common/driver_library.hpp"
#include "common/driver_result.hpp"

namespace rdmabuf::detail::level_zero {
namespace {

constexpr std::array library_names{"libze_loader.so.1", "libze_loader.so"};
constexpr const char* library_remedy =
    "install the Level Zero loader (Debian: libze1) and the driver of the GPU (libze-intel-gpu1, "
    "intel-level-zero-gpu)";
constexpr const char* version_remedy = "install a Level Zero loader of version 1.2 or newer";
constexpr const char* driver_remedy =
    "install the driver of the GPU (libze-intel-gpu1, intel-level-zero-gpu), and give this process "
    "permission to open /dev/dri/renderD* (group render)";
constexpr const char* initialise_remedy =
    "Level Zero is not initialised in this process: call zeInit first, or availability()";

Functions look_up(SymbolLookup& lookup) {
    Functions all;
    constexpr const char* first = "Level Zero 1.0";
    lookup.required("zeInit", all.init, first);
    lookup.required("zeDriverGet", all.driver_get, first);
    lookup.required("zeDriverGetApiVersion", all.driver_get_api_version, first);
    lookup.required("zeDeviceGet", all.device_get, first);
    lookup.required("zeDeviceGetProperties", all.device_get_properties, first);
    lookup.needed("zeDeviceGetExternalMemoryProperties", all.device_get_external_memory_properties,
                  first);
    lookup.needed("zeDeviceGetCommandQueueGroupProperties", all.device_get_queue_group_properties,
                  first);
    lookup.required("zeContextCreate", all.context_create, first);
    lookup.needed("zeMemAllocDevice", all.mem_alloc_device, first);
    lookup.needed("zeMemFree", all.mem_free, first);
    lookup.required("zeMemGetAllocProperties", all.mem_get_alloc_properties, first);
    lookup.required("zeMemGetAddressRange", all.mem_get_address_range, first);
    lookup.needed("zeVirtualMemGetAccessAttribute", all.virtual_mem_get_access_attribute, first);
    lookup.needed("zeCommandListCreateImmediate", all.command_list_create_immediate, first);
    lookup.needed("zeCommandListDestroy", all.command_list_destroy, first);
    lookup.needed("zeCommandListAppendMemoryCopy", all.command_list_append_memory_copy, first);
    lookup.optional("zeDevicePciGetPropertiesExt", all.device_pci_get_properties);
    return all;
}

const char* short_name_of(Result result) {
    static const std::map<Result, const char*> names{
        {device_lost, "ERROR_DEVICE_LOST"},
        {out_of_host_memory, "ERROR_OUT_OF_HOST_MEMORY"},
        {out_of_device_memory, "ERROR_OUT_OF_DEVICE_MEMORY"},
        {insufficient_permissions, "ERROR_INSUFFICIENT_PERMISSIONS"},
        {not_available, "ERROR_NOT_AVAILABLE"},
        {dependency_unavailable, "ERROR_DEPENDENCY_UNAVAILABLE"},
        {uninitialized, "ERROR_UNINITIALIZED"},
        {unsupported_version, "ERROR_UNSUPPORTED_VERSION"},
        {unsupported_feature, "ERROR_UNSUPPORTED_FEATURE"},
        {invalid_argument, "ERROR_INVALID_ARGUMENT"},
        {invalid_null_handle, "ERROR_INVALID_NULL_HANDLE"},
        {invalid_null_pointer, "ERROR_INVALID_NULL_POINTER"},
        {unsupported_size, "ERROR_UNSUPPORTED_SIZE"},
        {unsupported_alignment, "ERROR_UNSUPPORTED_ALIGNMENT"},
        {invalid_enumeration, "ERROR_INVALID_ENUMERATION"},
        {unsupported_enumeration, "ERROR_UNSUPPORTED_ENUMERATION"},
        {address_not_found, "ERROR_ADDRESS_NOT_FOUND"},
        {unknown_error, "ERROR_UNKNOWN"},
    };
    const auto found = names.find(result);
    return found != names.end() ? found->second : nullptr;
}

/// Returns a remedy for @p result that fits all functions of the driver, or null if there is none.
const char* remedy_for(Result result) noexcept {
    switch (result) {
        case uninitialized:
            return initialise_remedy;
        case device_lost:
            return "the GPU hung or was reset, and the contents of its memory are lost: check "
                   "dmesg, and restart the process";
        default:
            return nullptr;
    }
}

/// Reads an array from the driver with two calls of @p get. The first call returns the number of
/// items, the second call returns the items.
template <class Item, class Get>
std::variant<std::vector<Item>, Result> all_of(const Get& get) {
    std::uint32_t count = 0;
    if (const Result counted = get(&count, nullptr); counted != success) {
        return counted;
    }
    std::vector<Item> items(count);
    if (const Result got = count != 0 ? get(&count, items.data()) : success; got != success) {
        return got;
    }
    items.resize(count);
    return items;
}

} // namespace

struct Driver::OwnContexts {
    std::mutex mutex;
    /// True if `made` is not empty, and has a context for each driver that has a GPU.
    bool complete = false;
    std::map<DriverHandle, Context> made;

    /// Creates a context of @p driver, if there is no context of this driver yet.
    Result make(const Functions& functions, DriverHandle driver) {
        if (made.contains(driver)) {
            return success;
        }
        const ContextDesc desc;
        Context context = nullptr;
        const Result result = functions.context_create(driver, &desc, &context);
        if (result == success) {
            made.emplace(driver, context);
        }
        return result;
    }
};

Driver::Driver(std::string library, const Functions& functions, std::optional<ErrorInfo> lacking)
    : DriverBase(std::move(library), functions, std::move(lacking)),
      own_(std::make_shared<OwnContexts>()) {}

DriverDescription<Functions> Driver::description() {
    return {library_names, "Level Zero loader", library_remedy, version_remedy, look_up};
}

std::optional<ErrorInfo> Driver::initialise() const {
    // No flags are set: with ZE_INIT_FLAG_GPU_ONLY, the initialisation of drivers for other devices
    // would fail, and the loader would skip these drivers for the rest of the process.
    const Result initialised = functions().init(0);
    if (initialised == success) {
        return std::nullopt;
    }
    // zeInit has no separate result for a machine without a driver, so the remedy for every failure
    // is to install the driver.
    return ErrorInfo{
        errno_of(initialised), "zeInit",
        "no driver for a GPU can be initialised by " + library() + ": " + name_of(initialised),
        driver_remedy};
}

std::variant<std::vector<DriverHandle>, Result> Driver::drivers() const {
    return all_of<DriverHandle>(functions().driver_get);
}

std::variant<std::vector<Device>, Driver::Failure> Driver::gpus_of(DriverHandle driver) const {
    const auto found = all_of<Device>([&](std::uint32_t* count, Device* devices) {
        return functions().device_get(driver, count, devices);
    });
    if (const auto* const result = std::get_if<Result>(&found)) {
        return Failure{.result = *result, .function = "zeDeviceGet"};
    }
    std::vector<Device> gpus;
    for (Device device : std::get<std::vector<Device>>(found)) {
        DeviceProperties properties;
        if (const Result result = functions().device_get_properties(device, &properties);
            result != success) {
            return Failure{.result = result, .function = "zeDeviceGetProperties"};
        }
        if (properties.type == device_type_gpu) {
            gpus.push_back(device);
        }
    }
    return gpus;
}

rdmabuf::Result<std::vector<Gpu>> Driver::gpus() const {
    const auto refused = [](Result result, const char* function) {
        return ErrorInfo{errno_of(result), function,
                         "the GPUs cannot be listed: " + name_of(result)};
    };
    const auto found = drivers();
    if (const auto* const result = std::get_if<Result>(&found)) {
        return refused(*result, "zeDriverGet");
    }
    std::vector<Gpu> all;
    for (DriverHandle driver : std::get<std::vector<DriverHandle>>(found)) {
        const auto devices = gpus_of(driver);
        if (const auto* const failure = std::get_if<Failure>(&devices)) {
            return refused(failure->result, failure->function);
        }
        for (Device device : std::get<std::vector<Device>>(devices)) {
            all.push_back({.driver = driver, .device = device});
        }
    }
    return all;
}

/// Creates the missing contexts, and stores the first failure in @p list. The caller must hold
/// OwnContexts::mutex.
void Driver::make_contexts(OwnContextList& list) const {
    bool complete = true;
    const auto note = [&](Result result, const char* function) {
        complete = false;
        // These two results mean that zeInit was not called, or that no driver is installed. The
        // process then has no memory of Level Zero, so the results are not stored as failures.
        const bool none = result == uninitialized || result == unsupported_feature;
        if (list.failed == success && !none) {
            list.failed = result;
            list.function = function;
        }
    };
    const auto found = drivers();
    if (const auto* const result = std::get_if<Result>(&found)) {
        note(*result, "zeDriverGet");
        return;
    }
    for (DriverHandle driver : std::get<std::vector<DriverHandle>>(found)) {
        const auto gpus = gpus_of(driver);
        if (const auto* const failure = std::get_if<Failure>(&gpus)) {
            note(failure->result, failure->function);
        } else if (!std::get<std::vector<Device>>(gpus).empty()) {
            if (const Result made = own_->make(functions(), driver); made != success) {
                note(made, "zeContextCreate");
            }
        }
    }
    own_->complete = complete && !own_->made.empty();
}

OwnContextList Driver::contexts() const {
    const std::lock_guard lock(own_->mutex);
    OwnContextList list;
    if (!own_->complete) {
        make_contexts(list);
    }
    list.contexts.reserve(own_->made.size());
    for (const auto& [driver, context] : own_->made) {
        list.contexts.push_back(context);
    }
    return list;
}

Context Driver::context_of(DriverHandle driver) const {
    const std::lock_guard lock(own_->mutex);
    check(own_->make(functions(), driver), "zeContextCreate",
          "a context for the GPU cannot be created");
    return own_->made.at(driver);
}

std::string Driver::name_of(Result result) {
    const char* const name = short_name_of(result);
    std::array<char, 16> number{};
    std::snprintf(number.data(), number.size(), "0x%" PRIx32, result);
    return (name != nullptr ? std::string("ZE_RESULT_") + name : "unknown result") + " (" +
           number.data() + ")";
}

void Driver::raise(Result result, const char* function, std::string_view hint) {
    DriverFailure{name_of(result), errno_of(result), remedy_for(result)}.raise(function, hint);
}

bool Driver::exports_dmabufs(Device device) const {
    ExternalMemoryProperties properties;
    return functions().device_get_external_memory_properties(device, &properties) == success &&
           (properties.memory_export_types & external_dma_buf) != 0;
}

std::string Driver::pci_address(Device device) const {
    PciProperties properties;
    if (device == nullptr || functions().device_pci_get_properties == nullptr ||
        functions().device_pci_get_properties(device, &properties) != success) {
        return {};
    }
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", properties.domain, properties.bus,
                  properties.device, properties.function);
    return text.data();
}

int errno_of(Result result) noexcept {
    switch (result) {
        case out_of_host_memory:
        case out_of_device_memory:
        case unsupported_size:
            return ENOMEM;
        case uninitialized:
        case device_lost:
        case dependency_unavailable:
            return ENODEV;
        case unsupported_feature:
        case unsupported_enumeration:
        case unsupported_version:
            return EOPNOTSUPP;
        case insufficient_permissions:
            return EPERM;
        default:
            return EIO;
    }
}

void report_teardown(Result result, const char* function) noexcept {
    report_teardown_unless({success, uninitialized}, result, errno_of(result), function);
}

} // namespace rdmabuf::detail::level_zero
