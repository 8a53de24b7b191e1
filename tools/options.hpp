// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/gid.hpp>

namespace CLI {
class App;
}

namespace rdmabuf::tools {

/// The command line is wrong for this machine or contradicts itself; what() says how to correct it.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The RDMA device of a subcommand.
struct DeviceOptions {
    /// Empty for the first device with an active port.
    std::string device;
    /// 1 by default.
    std::optional<std::uint8_t> port;
    /// Context::best_gid() by default.
    std::optional<std::uint8_t> gid_index;
};
void add_device_options(CLI::App& app, DeviceOptions& options);
/// @throws UsageError for a device that does not exist, Error
[[nodiscard]] Context open_device(const DeviceOptions& options);
/// The entry of the GID table to use. @throws UsageError for a port that does not exist and for an
/// index without a GID, Error
[[nodiscard]] GidEntry choose_gid(const Context& context, const DeviceOptions& options);

/// The memory of a subcommand.
struct MemoryOptions {
    /// "host", "dm", "external", "memfd", or an exporter's name with '-' for '_'.
    std::string type = "host";
    std::optional<std::string> heap;
    std::optional<std::string> drm_node;
    std::optional<std::string> drm_driver;
};
/// All values of MemoryOptions::type.
[[nodiscard]] const std::vector<std::string>& memory_types();
void add_memory_options(CLI::App& app, MemoryOptions& options);
/// @throws UsageError for an option of another type of memory
void check(const MemoryOptions& options);

} // namespace rdmabuf::tools
