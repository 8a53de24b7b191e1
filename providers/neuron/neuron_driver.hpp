// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/result.hpp>

#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "neuron/neuron_abi.hpp"

namespace rdmabuf::detail::neuron {

/// The functions of the runtime.
struct Functions {
    Init* init = nullptr;
    GetTotalCoreCount* get_total_core_count = nullptr;
    TensorAllocate* tensor_allocate = nullptr;
    TensorFree* tensor_free = nullptr;
    TensorGetAddress* tensor_get_address = nullptr;
    TensorRead* tensor_read = nullptr;
    TensorWrite* tensor_write = nullptr;
    GetDmabufFd* get_dmabuf_fd = nullptr;
    /// Null in older runtimes, as is what follows.
    GetDmabufFdV2* get_dmabuf_fd_v2 = nullptr;
    GetVersion* get_version = nullptr;
};

/// The runtime, loaded but not initialised: that takes NeuronCores from other processes.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// "2.31.24.0"; empty when the runtime does not tell.
    [[nodiscard]] std::string version() const;

    /// The dma-buf of the memory of one allocation, from its first address on.
    /// @throws Error as NeuronExporter::add
    [[nodiscard]] ExportedMemory export_memory(std::uint64_t address, std::size_t length) const;

    /// @param hint  what was asked for, and what to do; for some results a remedy is added
    [[noreturn]] void raise(Status status, const char* function, std::string_view hint) const;
    void check(Status status, const char* function, std::string_view hint) const {
        if (status != success) {
            raise(status, function, hint);
        }
    }
};

/// "NRT_INVALID (2)"
[[nodiscard]] std::string name_of(Status status);
/// The errno that stands for @p status.
[[nodiscard]] int errno_of(Status status) noexcept;

/// Why a kernel module must not be used, if so.
/// @param version  what /sys/module/neuron/version has; none where there is no such file
[[nodiscard]] std::optional<ErrorInfo> check_kernel_module(
    const std::optional<std::string>& version);
/// The same of the one that is loaded.
[[nodiscard]] std::optional<ErrorInfo> check_kernel_module();

} // namespace rdmabuf::detail::neuron
