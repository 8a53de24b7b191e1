// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/providers/habana.hpp>

#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"
#include "fake_habana.hpp"
#include "habana/synapse.hpp"
#include "habana/thunk.hpp"

namespace rdmabuf::testing {

const DriverRow& driver_row() {
    using namespace detail::habana;
    static const std::string export_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
    static const DriverRow row{
        .name = "habana",
        .make = [](int /*device*/) { return make_habana_exporter(); },
        .for_program =
            [] { return make_habana_exporter({.fd = fake_habana::open(DeviceName::gaudi2)}); },
        .add =
            [](Allocator& exporter, std::uintptr_t address, std::size_t length,
               std::uint64_t generation) {
                return dynamic_cast<HabanaExporter&>(exporter).add(
                    {.address = address,
                     .length = length,
                     .mapping = fake::block_of(address),
                     .generation = generation});
            },
        .end =
            [] {
                EXPECT_EQ(fake::references(), 0U) << "a device is still acquired";
                EXPECT_EQ(fake::live(), 0U);
            },
        .libraries = {{.load = load_error<Thunk>,
                       .absent = "the Habana driver",
                       .install = "install habanalabs-thunk",
                       .lacks = {"hlthunk_device_memory_export_dmabuf_fd (available since 2021)"},
                       .has = {"hlthunk_close", export_call},
                       .old = LACKING_DRIVER},
                      {.load = load_error<Synapse>,
                       .absent = "the Synapse library",
                       .install = "install habanalabs-graph",
                       .lacks = {"synMemCopyAsync"},
                       .old = LACKING_DRIVER}},
        .no_device = "libhl-thunk.so finds no device",
        .no_device_remedy = "/dev/accel/accel_controlD0",
        .available = "libhl-thunk.so, 0000:33:00.0, 0000:33:00.0",
        .allocate_failures =
            {{"synInitialize", failed, EIO, "synFail (26)"},
             {"synDeviceAcquire", no_device_found, ENODEV, "hl-smi"},
             {"synDeviceAcquire", device_already_acquired, EBUSY, "HabanaOptions::fd"},
             {"synDeviceGetInfoV2", unsupported, EOPNOTSUPP, "synUnsupported (18)"},
             {"synStreamCreateGeneric", device_reset, EIO, "being reset"},
             {"synDeviceMalloc", out_of_device_memory, ENOMEM, "synOutOfDeviceMemory (4)"},
             {"synDeviceMalloc", 99, EIO, "unknown result (99)"},
             {export_call, -ENOMEM, ENOMEM, ""}},
        .export_failures = {{export_call, -EBUSY, EBUSY, "being reset"}},
        .copy_failures = {{"synHostMalloc", busy, EBUSY, "synBusy (22)"},
                          {"synMemCopyAsync", busy, EBUSY, "7 bytes"},
                          {"synStreamSynchronize", busy, EBUSY, "7 bytes"}},
        .export_call = export_call,
        .no_descriptor = {"", 0, ENOMEM, ""},
        .packs = true,
        .exports_more = true,
        .kinds = {{fake::Kind::device, MemoryKind::device, "0000:33:00.0"}},
    };
    return row;
}

} // namespace rdmabuf::testing
