// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <functional>
#include <optional>
#include <string>

#include <rdmabuf/error.hpp>

#include "../resources/kernel_resources.hpp"
#include "cuda_devices.hpp"

namespace rdmabuf::tools::doctor {

/// Returns true if a library of this process has the function with this symbol version.
[[nodiscard]] bool has_function(const char* name, const char* version);
/// Returns whether the exporter can be used. May initialise the driver of a GPU.
[[nodiscard]] Availability query_exporter(const std::string& exporter);

/// Queries of the libraries, the drivers and the kernel of the running system. Tests replace the
/// functions. A recorded machine has no SystemQueries.
struct SystemQueries {
    std::function<bool(const char* name, const char* version)> has_function = doctor::has_function;
    std::function<ibv_fork_status()> fork_status = ::ibv_is_fork_initialized;
    std::function<resources::Report()> resources = resources::read_resources;
    // The following functions can load the driver of a GPU.
    std::function<CudaDevices()> cuda = query_cuda_devices;
    std::function<std::optional<Bar1>(const std::string& pci_address)> bar1 = query_bar1;
    std::function<Availability(const std::string& exporter)> exporter = query_exporter;
};

} // namespace rdmabuf::tools::doctor
