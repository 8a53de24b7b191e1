// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/neuron.hpp>

#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"
#include "neuron/neuron_driver.hpp"

namespace rdmabuf::testing {

const DriverRow& driver_row() {
    using namespace detail::neuron;
    static const std::string export_call = "nrt_get_dmabuf_fd_v2";
    static const DriverRow row{
        .name = "neuron",
        .make = [](int device) { return make_neuron_exporter({.core = device}); },
        .add =
            [](Allocator& exporter, std::uintptr_t address, std::size_t length,
               std::uint64_t generation) {
                return dynamic_cast<NeuronExporter&>(exporter).add({.address = address,
                                                                    .length = length,
                                                                    .pci_address = "0000:10:1e.0",
                                                                    .generation = generation});
            },
        .libraries = {{.load = load_error<Driver>,
                       .absent = "the Neuron runtime",
                       .install = "install aws-neuronx-runtime-lib",
                       .lacks = {"nrt_get_dmabuf_fd (available since 2023)", "nrt_tensor_get_va"},
                       .has = {"nrt_init", "_v2"},
                       .update = "update aws-neuronx-runtime-lib",
                       .old = LACKING_DRIVER}},
        .no_device = "no NeuronCore 0; number of NeuronCores: 0",
        .available = OLDER_DRIVER ? "libnrt.so.1 2.31.24.0, NeuronCores: 2, without "
                                    "nrt_get_dmabuf_fd_v2: whole allocations only"
                                  : "libnrt.so.1 2.31.24.0, NeuronCores: 2",
        .allocate_failures = {{export_call, resource, ENOMEM, "NRT_RESOURCE (4)"},
                              {"nrt_tensor_allocate", resource, ENOMEM, "NRT_RESOURCE (4)"}},
        .export_failures = {{export_call, failure, EIO, "NRT_FAILURE (1)"},
                            {export_call, invalid_handle, EINVAL, "NRT_INVALID_HANDLE (3)"},
                            {export_call, resource, ENOMEM, "NRT_RESOURCE (4)"},
                            {export_call, timeout, ETIMEDOUT, "NRT_TIMEOUT (5)"},
                            {export_call, hardware_error, EIO, "NRT_HW_ERROR (6)"},
                            {export_call, uninitialized, ENODEV, "NRT_UNINITIALIZED (13): "},
                            {export_call, closed, ENODEV, "nrt_close() was called"},
                            {export_call, 1205, EIO, "unknown result (1205)"}},
        .copy_failures = {{"nrt_tensor_write", hardware_error, EIO, "7 bytes"},
                          {"nrt_tensor_read", timeout, ETIMEDOUT, "7 bytes"}},
        .export_call = export_call,
        .exports_pages = !OLDER_DRIVER,
        .kinds = {{fake::Kind::device, MemoryKind::device, "0000:10:1e.0"}},
    };
    return row;
}

} // namespace rdmabuf::testing
