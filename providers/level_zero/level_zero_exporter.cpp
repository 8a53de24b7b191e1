// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/level_zero.hpp>

#include "common/driver_result.hpp"
#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "level_zero/level_zero_export.hpp"
#include "level_zero/level_zero_memory.hpp"
#include "level_zero/level_zero_pointer.hpp"

namespace rdmabuf {
namespace {

using namespace detail::level_zero;
using detail::Extent;

constexpr const char* name_of_exporter = "level_zero";

MemoryKind kind_of(MemoryType type) noexcept {
    switch (type) {
        case MemoryType::host:
        case MemoryType::host_imported:
            return MemoryKind::pinned_host;
        case MemoryType::shared:
            return MemoryKind::managed;
        default:
            return MemoryKind::device;
    }
}

Allocation describe(const Driver& driver, const Pointer& pointer) {
    const Extent extent = extent_of(driver, pointer);
    return {.base = extent.base,
            .length = extent.length,
            // Intel's driver before 2021-09 reports the address as id. An address is not a
            // generation, because later memory can get the same address.
            .generation = pointer.id != extent.base ? pointer.id : 0,
            .kind = kind_of(pointer.type),
            .pci_address = driver.pci_address(pointer.device)};
}

/// Initialises Level Zero. @return all GPUs, or an error: ENODEV if no GPU has the index @p wanted,
/// or the error of Driver::initialise() or Driver::gpus()
rdmabuf::Result<std::vector<Gpu>> initialise(const Driver& driver, int wanted) {
    if (auto error = driver.initialise()) {
        return std::move(*error);
    }
    auto found = driver.gpus();
    if (found && (wanted < 0 || static_cast<std::size_t>(wanted) >= found->size())) {
        return ErrorInfo{
            ENODEV, "zeDeviceGet",
            "there is no GPU " + std::to_string(wanted) +
                "; number of GPUs that this process sees: " + std::to_string(found->size()),
            "choose a GPU that exists, or make more GPUs visible: check ZE_AFFINITY_MASK, and that "
            "/dev/dri/renderD* are passed to the container"};
    }
    return found;
}

std::string version_of(const Driver& driver, DriverHandle handle) {
    std::uint32_t version = 0;
    if (driver.functions().driver_get_api_version(handle, &version) != success) {
        return "of unknown version";
    }
    return "for Level Zero " + std::to_string(version >> 16U) + "." +
           std::to_string(version & 0xffffU);
}

class LevelZeroExporter final : public detail::DriverAllocator<Driver> {
  public:
    explicit LevelZeroExporter(const LevelZeroOptions& options) : device_(options.device) {
        std::transform(options.contexts.begin(), options.contexts.end(),
                       std::back_inserter(contexts_),
                       [](void* context) { return static_cast<Context>(context); });
    }

    [[nodiscard]] std::string_view name() const noexcept override { return name_of_exporter; }

    [[nodiscard]] Availability availability() const override {
        const auto loaded = Driver::of_process().load();
        if (!loaded) {
            return loaded.error_info().availability();
        }
        const Driver& driver = **loaded;
        const auto initialised = initialise(driver, device_);
        if (!initialised) {
            return initialised.error_info().availability();
        }
        const auto& gpus = *initialised;
        std::string list;
        std::optional<ErrorInfo> unfit;
        for (const Gpu& gpu : gpus) {
            if (auto error = check_device(driver, gpu.device)) {
                unfit = std::move(error);
                continue;
            }
            detail::append_device(list, driver.pci_address(gpu.device));
        }
        if (list.empty() && unfit) {
            return unfit->availability();
        }
        return Availability::yes(driver.library() + " " + version_of(driver, gpus.front().driver) +
                                 ", " + list);
    }

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        const Driver* const driver = Driver::of_process().loaded();
        if (driver == nullptr) {
            return std::nullopt;
        }
        const Contexts contexts(*driver, contexts_);
        auto found = detail::find_allocation(
            [&] { return contexts.find(address); },
            [&](const auto& pointer) { return describe(*driver, pointer); });
        if (!found) {
            Driver::of_process().check_other_copies(address, [address](const Driver& other) {
                return Contexts(other, {}).find(address).has_value();
            });
        }
        return found;
    }

    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        detail::check_exported(length);
        detail::check_standard(name_of_exporter, mapping);
        const Driver& driver = *Driver::of_process().load().value();
        const Contexts contexts(driver, contexts_);
        const Pointer pointer = contexts.require(address);
        return detail::export_unless_freed(
            address, [&] { return contexts.require(address).id == pointer.id; },
            [&] {
                check_exportable(driver, pointer);
                Handle handle = export_allocation(driver, pointer, length);
                return ExportedRange(name_of_exporter, std::move(handle.fd), handle.offset, length,
                                     address);
            });
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        const Driver& driver = *Driver::of_process().load().value();
        const auto gpus = initialise(driver, device_).value();
        return detail::level_zero::allocate(driver, gpus[static_cast<std::size_t>(device_)], size);
    }

  private:
    int device_;
    std::vector<Context> contexts_;
};

} // namespace

std::shared_ptr<Allocator> make_level_zero_exporter(const LevelZeroOptions& options) {
    return std::make_shared<LevelZeroExporter>(options);
}

} // namespace rdmabuf
