// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/cuda.hpp>

#include "common/driver_result.hpp"
#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/cuda_pointer.hpp"
#include "cuda/cuda_range.hpp"

namespace rdmabuf {
namespace {

using namespace detail::cuda;

constexpr const char* name_of_exporter = "cuda";

MemoryKind kind_of(const Pointer& pointer) noexcept {
    if (pointer.managed) {
        return MemoryKind::managed;
    }
    return pointer.type == MemoryType::host ? MemoryKind::pinned_host : MemoryKind::device;
}

/// Returns true if the GPU is not integrated and translates addresses with the page tables of its
/// CPU (address translation services). A GPU that NVLink-C2C connects to its CPU does this. A GPU
/// on PCIe uses page tables of its own.
bool is_coherent(const Driver& driver, Device device) noexcept {
    using enum DeviceAttribute;
    return driver.attribute(pageable_memory_access_uses_host_page_tables, device) != 0 &&
           driver.attribute(integrated, device) == 0;
}

Allocation describe(const Driver& driver, const Pointer& pointer, std::size_t length) {
    const Mappings mappings = mappings_of(driver, pointer, length, &find_extent);
    return {.base = mappings.extent.base,
            .length = mappings.extent.length,
            .generation = mappings.generation,
            .kind = kind_of(pointer),
            .pci_address = driver.pci_address(pointer.device),
            .c2c = is_coherent(driver, pointer.device)};
}

/// Holds the initialised driver and the number of its devices.
struct Usable {
    const Driver* driver;
    int devices;
};

rdmabuf::Result<Usable> initialise(int wanted) {
    auto loaded = Driver::of_process().load();
    if (!loaded) {
        return loaded.error_info();
    }
    const Driver& driver = **loaded;
    if (auto error = driver.initialise()) {
        return std::move(*error);
    }
    Usable usable{.driver = &driver, .devices = 0};
    if (const auto counted = driver.functions().device_get_count(&usable.devices);
        counted != success) {
        return ErrorInfo{errno_of(counted), "cuDeviceGetCount",
                         "the devices cannot be counted: " + driver.name_of(counted)};
    }
    if (wanted < 0 || wanted >= usable.devices) {
        return ErrorInfo{
            ENODEV, "cuDeviceGet",
            "there is no device " + std::to_string(wanted) +
                "; number of devices that this process sees: " + std::to_string(usable.devices),
            "choose a device that exists, or make more devices visible with CUDA_VISIBLE_DEVICES"};
    }
    return usable;
}

std::string version_of(const Driver& driver) {
    int version = 0;
    if (driver.functions().driver_get_version(&version) != success) {
        return "of unknown version";
    }
    return "for CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

class CudaExporter final : public detail::DriverAllocator<Driver> {
  public:
    explicit CudaExporter(const CudaOptions& options) : options_(options) {}

    [[nodiscard]] std::string_view name() const noexcept override { return name_of_exporter; }

    [[nodiscard]] Availability availability() const override {
        const auto initialised = initialise(options_.device);
        if (!initialised) {
            return initialised.error_info().availability();
        }
        const auto& [driver, devices] = *initialised;
        std::string list;
        std::optional<ErrorInfo> unfit;
        for (Device device = 0; device < devices; ++device) {
            if (auto error = check_device(*driver, device)) {
                unfit = std::move(error);
                continue;
            }
            detail::append_device(list, driver->pci_address(device));
        }
        if (list.empty() && unfit) {
            return unfit->availability();
        }
        return Availability::yes(driver->library() + " " + version_of(*driver) + ", " + list);
    }

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        return find_range(address, 1);
    }

    [[nodiscard]] std::optional<Allocation> find_range(std::uintptr_t address,
                                                       std::size_t length) const override {
        const Driver* const driver = Driver::of_process().loaded();
        if (driver == nullptr) {
            return std::nullopt;
        }
        auto found = detail::find_allocation(
            [&] { return find_pointer(*driver, address); },
            [&](const auto& pointer) { return describe(*driver, pointer, length); });
        if (!found) {
            Driver::of_process().check_other_copies(address, [address](const Driver& other) {
                return find_pointer(other, address).has_value();
            });
        }
        return found;
    }

    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        detail::check_exported(length);
        const Driver& driver = *Driver::of_process().load().value();
        const Pointer pointer = require_pointer(driver, address);
        return detail::export_unless_freed(
            address, [&] { return require_pointer(driver, address).id == pointer.id; },
            [&] {
                check_exportable(driver, pointer);
                const PointerContext current(driver, pointer);
                Handle handle = export_pages(driver, pointer, length, mapping);
                return ExportedRange(name_of_exporter, std::move(handle.fd), handle.offset, length,
                                     address, handle.mapping);
            });
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        const Usable usable = initialise(options_.device).value();
        Device device = 0;
        usable.driver->check(usable.driver->functions().device_get(&device, options_.device),
                             "cuDeviceGet",
                             "device " + std::to_string(options_.device) + " was requested");
        return detail::cuda::allocate(*usable.driver, device, size);
    }

  private:
    CudaOptions options_;
};

} // namespace

std::shared_ptr<Allocator> make_cuda_exporter(const CudaOptions& options) {
    return std::make_shared<CudaExporter>(options);
}

} // namespace rdmabuf
