// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>

namespace rdmabuf::tools {

/// The error for options that contradict each other or that this machine does not support. what()
/// explains how to correct the command line.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The options that select the RDMA device.
struct DeviceOptions {
    /// The name of the device; empty for the first device with an active port.
    std::string device;
    /// The port number, counted from 1; if empty, port 1 is used.
    std::optional<std::uint8_t> port;
    /// The index in the GID table of the port; if empty, the index that Context::best_gid() returns
    /// is used.
    std::optional<std::uint8_t> gid_index;
};
/// Checks that @p name, the value of --device, is one of @p devices. @p devices must not be empty.
/// @throws UsageError with all names if it is not
void check_device_name(const std::string& name, const std::vector<std::string>& devices);
/// Returns the device of @p list with the name @p name, which is the value of --device.
/// @throws UsageError with the names of all devices if the list does not contain the device; Error
///         ENODEV if the list is empty
[[nodiscard]] const Device& find_device(const DeviceList& list, const std::string& name);
/// Opens the selected device.
/// @throws UsageError if the device does not exist, Error if it cannot be opened
[[nodiscard]] Context open_device(const DeviceOptions& options);
/// Returns the entry of the GID table with the index --gid-index. The default is best_gid().
/// @throws UsageError if the port does not exist or has no GID at the index; Error if the device
///         cannot be queried or the port has no GID
[[nodiscard]] GidEntry choose_gid(const Context& context, const DeviceOptions& options);

/// The options that select the memory.
struct MemoryOptions {
    /// The type of memory: "host", "dm" (memory of the RDMA device), or the name of an exporter.
    std::string type = "host";
    std::optional<std::string> heap = std::nullopt;
    std::optional<std::string> drm_node = std::nullopt;
    std::optional<std::string> drm_driver = std::nullopt;
    /// Only for "cuda", "level_zero" and "rocm": the device ordinal in the driver of the GPU.
    std::optional<int> gpu = std::nullopt;
};
/// Returns the valid values of MemoryOptions::type.
[[nodiscard]] const std::vector<std::string>& memory_types();
/// Checks that the options for dma_heap and drm apply to the selected type of memory.
/// @throws UsageError if an option belongs to another type of memory
void check(const MemoryOptions& options);

} // namespace rdmabuf::tools
