// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>

#include "../options.hpp"
#include "../text.hpp"

namespace rdmabuf::tools::trial {

/// The options of `rdmabuf register`.
struct Options {
    DeviceOptions device;
    MemoryOptions memory;
    /// The size of the memory in bytes.
    std::uint64_t size = 1U << 20U;
    /// The offset of the first registered byte in the memory, in bytes.
    std::uint64_t offset = 0;
    std::vector<RegistrationPath> paths;
    Access access = Access::local_write;
    bool json = false;
};

/// The names of the registration paths on the command line, and their values.
[[nodiscard]] const std::vector<std::pair<std::string, RegistrationPath>>& paths();
/// The names of the access flags on the command line, and their values.
[[nodiscard]] const std::vector<std::pair<std::string, Access>>& access_flags();

/// The keys and the addresses of memory that was registered.
struct Registered {
    /// The name of the registration path; "dm" for memory of the RDMA device.
    std::string path;
    /// The mapping of the exported dma-buf; empty if no dma-buf was registered.
    std::string mapping;
    std::string exporter;
    std::string pci_address;
    std::uint64_t iova = 0;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
    std::chrono::nanoseconds duration{};
};

/// The result of `rdmabuf register`.
struct Trial {
    /// The name of the device; empty if no device could be opened and none was requested.
    std::string device;
    /// The type of the memory (--memory), followed by the details of its exporter if there are any:
    /// for example "udmabuf, /dev/udmabuf, up to 64 MiB per buffer". Only the type if the
    /// allocation failed.
    std::string memory;
    /// The address of the first registered byte; 0 for memory of the RDMA device, and if the
    /// allocation failed.
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    Access access{};
    /// The attempts, in chronological order; empty for memory of the RDMA device.
    Trail trail;
    /// Empty if the registration failed.
    std::optional<Registered> registered;
    /// The error of opening the device, of the allocation or of the registration; empty after
    /// success.
    std::string problem = {};
};

/// Allocates the memory, registers and deregisters it.
/// @throws UsageError if this build or this device does not support an option
[[nodiscard]] Trial try_registration(const Options& options);

[[nodiscard]] std::string to_text(const Trial& trial, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const Trial& trial);

} // namespace rdmabuf::tools::trial
