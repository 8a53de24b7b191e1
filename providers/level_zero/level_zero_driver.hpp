// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <rdmabuf/error.hpp>

#include "common/process_driver.hpp"
#include "level_zero/level_zero_abi.hpp"

namespace rdmabuf::detail::level_zero {

/// Holds pointers to the functions of the loader, which passes calls to the drivers. A function
/// that the loader lacks is null.
struct Functions {
    Init* init = nullptr;
    DriverGet* driver_get = nullptr;
    DriverGetApiVersion* driver_get_api_version = nullptr;
    DeviceGet* device_get = nullptr;
    DeviceGetProperties* device_get_properties = nullptr;
    DeviceGetExternalMemoryProperties* device_get_external_memory_properties = nullptr;
    DeviceGetQueueGroupProperties* device_get_queue_group_properties = nullptr;
    ContextCreate* context_create = nullptr;
    MemAllocDevice* mem_alloc_device = nullptr;
    MemFree* mem_free = nullptr;
    MemGetAllocProperties* mem_get_alloc_properties = nullptr;
    MemGetAddressRange* mem_get_address_range = nullptr;
    VirtualMemGetAccessAttribute* virtual_mem_get_access_attribute = nullptr;
    CommandListCreateImmediate* command_list_create_immediate = nullptr;
    CommandListDestroy* command_list_destroy = nullptr;
    CommandListAppendMemoryCopy* command_list_append_memory_copy = nullptr;

    /// Null in older loaders.
    DevicePciGetProperties* device_pci_get_properties = nullptr;
};

struct Gpu {
    DriverHandle driver = nullptr;
    Device device = nullptr;
};

/// Lists one context for each driver that has a GPU. Contexts that could not be created are missing
/// from the list.
struct OwnContextList {
    std::vector<Context> contexts;
    /// The result of the first call that failed while the contexts were created (see `function`),
    /// or success. Results that mean that Level Zero is not initialised, or that no driver is
    /// installed, are not failures. After a failure, an address that no context recognizes may
    /// still be memory of a driver whose context is missing.
    Result failed = 0;
    const char* function = "";
};

/// Holds the functions of the Level Zero loader. Loading does not initialise Level Zero, because
/// the initialisation has side effects in the process.
class Driver : public DriverBase<Driver, Functions> {
  public:
    Driver(std::string library, const Functions& functions, std::optional<ErrorInfo> lacking);
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Initialises Level Zero in this process, if Level Zero is not initialised. @return an error
    /// if the initialisation fails
    [[nodiscard]] std::optional<ErrorInfo> initialise() const;
    /// Returns the GPUs of all drivers, in the order of zeDriverGet and zeDeviceGet.
    [[nodiscard]] rdmabuf::Result<std::vector<Gpu>> gpus() const;

    /// Returns the contexts that rdmabuf has created. The first call after zeInit creates the
    /// contexts. If one cannot be created, the next call tries again. Before zeInit, the list is
    /// empty and OwnContextList::failed is success. The contexts are never destroyed, because a
    /// static object of the program can own a buffer, which is freed through its context at the end
    /// of the process.
    [[nodiscard]] OwnContextList contexts() const;
    /// Returns rdmabuf's context for @p driver. Creates the context if it does not exist.
    /// @throws Error with the errno for the result of zeContextCreate
    [[nodiscard]] Context context_of(DriverHandle driver) const;

    /// Returns the name and the value of a result: "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
    /// (0x78000003)".
    [[nodiscard]] static std::string name_of(Result result);
    /// Throws an Error for a failed call.
    /// @param hint  text that names the failed operation. For some results, this function appends a
    ///              remedy
    [[noreturn]] static void raise(Result result, const char* function, std::string_view hint);
    static void check(Result result, const char* function, std::string_view hint) {
        if (result != success) {
            raise(result, function, hint);
        }
    }

    /// Returns true if memory of @p device can be exported as a dma-buf.
    [[nodiscard]] bool exports_dmabufs(Device device) const;
    /// Returns the PCI address of a device, "0000:3a:00.0", or an empty string if the driver does
    /// not report the address.
    [[nodiscard]] std::string pci_address(Device device) const;

  private:
    struct OwnContexts;
    struct Failure {
        Result result;
        const char* function;
    };

    [[nodiscard]] std::variant<std::vector<DriverHandle>, Result> drivers() const;
    [[nodiscard]] std::variant<std::vector<Device>, Failure> gpus_of(DriverHandle driver) const;
    void make_contexts(OwnContextList& list) const;

    std::shared_ptr<OwnContexts> own_;
};

[[nodiscard]] int errno_of(Result result) noexcept;

/// Reports a failed teardown to the teardown failure handler. Ignores the result of a loader that
/// has shut down at the end of the process: all objects of the driver are then freed.
void report_teardown(Result result, const char* function) noexcept;

} // namespace rdmabuf::detail::level_zero
