// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <rdmabuf/result.hpp>

#include "common/process_driver.hpp"
#include "level_zero/level_zero_abi.hpp"

namespace rdmabuf::detail::level_zero {

/// The functions of the loader, which passes them on to the drivers.
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
    MemGetIpcHandle* mem_get_ipc_handle = nullptr;
    CommandListCreateImmediate* command_list_create_immediate = nullptr;
    CommandListDestroy* command_list_destroy = nullptr;
    CommandListAppendMemoryCopy* command_list_append_memory_copy = nullptr;

    /// Null in loaders before those that have them.
    DevicePciGetProperties* device_pci_get_properties = nullptr;
    MemPutIpcHandle* mem_put_ipc_handle = nullptr;
    MemGetFdFromIpcHandle* mem_get_fd_from_ipc_handle = nullptr;
};

/// A GPU, and the driver that it belongs to.
struct Gpu {
    DriverHandle driver = nullptr;
    Device device = nullptr;
};

/// One context of each driver that has a GPU, as far as the drivers make one.
struct OwnContextList {
    std::vector<Context> contexts;
    /// The first failure: of the drivers that it concerns no memory can be looked up.
    Result failed = 0;
    const char* function = "";
};

/// Level Zero, loaded but not initialised: that is a step that changes the process.
class Driver : public DriverBase<Driver, Functions> {
  public:
    Driver(std::string library, const Functions& functions, std::optional<ErrorInfo> lacking);
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Initialises Level Zero in this process, unless it is. @return why it cannot be used
    [[nodiscard]] std::optional<ErrorInfo> initialise() const;
    /// The GPUs of all drivers, in the order of zeDriverGet and zeDeviceGet.
    [[nodiscard]] rdmabuf::Result<std::vector<Gpu>> gpus() const;

    /// The contexts of this library. The first call in a process that has initialised Level Zero
    /// makes them; in other processes the list is empty and without a failure. They are never
    /// destroyed: buffers of static objects are freed through them.
    [[nodiscard]] OwnContextList contexts() const;
    /// That of @p driver. @throws Error
    [[nodiscard]] Context context_of(DriverHandle driver) const;

    /// "ZE_RESULT_ERROR_UNSUPPORTED_FEATURE (0x78000003)"
    [[nodiscard]] static std::string name_of(Result result);
    /// @param hint  what was asked for, and what to do; for some results a remedy is added
    [[noreturn]] static void raise(Result result, const char* function, std::string_view hint);
    static void check(Result result, const char* function, std::string_view hint) {
        if (result != success) {
            raise(result, function, hint);
        }
    }

    /// Whether memory of @p device can be exported as a dma-buf.
    [[nodiscard]] bool exports_dmabufs(Device device) const;
    /// "0000:3a:00.0"; empty when the driver does not tell.
    [[nodiscard]] std::string pci_address(Device device) const;

  private:
    struct OwnContexts;

    [[nodiscard]] std::variant<std::vector<DriverHandle>, Result> drivers() const;
    [[nodiscard]] std::variant<std::vector<Device>, Result> gpus_of(DriverHandle driver) const;
    void make_contexts(OwnContextList& list) const;

    std::shared_ptr<OwnContexts> own_;
};

/// The errno that stands for @p result.
[[nodiscard]] int errno_of(Result result) noexcept;

/// Passes a failed teardown on, but for that of a loader that has gone before: at the end of the
/// process there is nothing left to give back.
void report_teardown(Result result, const char* function) noexcept;

} // namespace rdmabuf::detail::level_zero
