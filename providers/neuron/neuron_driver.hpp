// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>

#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "neuron/neuron_abi.hpp"

namespace rdmabuf::detail::neuron {

struct Functions {
    Init* init = nullptr;
    GetTotalCoreCount* get_total_core_count = nullptr;
    TensorAllocate* tensor_allocate = nullptr;
    TensorFree* tensor_free = nullptr;
    TensorGetAddress* tensor_get_address = nullptr;
    TensorRead* tensor_read = nullptr;
    TensorWrite* tensor_write = nullptr;
    GetDmabufFd* get_dmabuf_fd = nullptr;
    /// `get_dmabuf_fd_v2` and `get_version` are null if the runtime is too old to have the
    /// function.
    GetDmabufFdV2* get_dmabuf_fd_v2 = nullptr;
    GetVersion* get_version = nullptr;
};

/// Holds the functions of the loaded Neuron runtime. Loading does not initialise the runtime,
/// because the initialisation reserves NeuronCores.
class Driver : public DriverBase<Driver, Functions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<Functions> description();

    /// Returns the version of the runtime, for example "2.31.24.0", or an empty string if the
    /// runtime does not report its version.
    [[nodiscard]] std::string version() const;

    /// Exports memory of one allocation as a dma-buf.
    /// @param address  start of the allocation; with nrt_get_dmabuf_fd_v2, any address in the
    ///                 allocation
    /// @param length   in bytes
    /// @throws Error with the errors of NeuronExporter::add()
    [[nodiscard]] ExportedMemory export_memory(std::uint64_t address, std::size_t length) const;

    /// Throws an Error for a failed call.
    /// @param hint  text that names the failed operation. For some statuses, this function appends
    ///              a remedy
    [[noreturn]] void raise(NrtStatus status, const char* function, std::string_view hint) const;
    void check(NrtStatus status, const char* function, std::string_view hint) const {
        if (status != success) {
            raise(status, function, hint);
        }
    }
};

/// Returns the name and the value of a status: "NRT_INVALID (2)".
[[nodiscard]] std::string name_of(NrtStatus status);
[[nodiscard]] int errno_of(NrtStatus status) noexcept;

} // namespace rdmabuf::detail::neuron
