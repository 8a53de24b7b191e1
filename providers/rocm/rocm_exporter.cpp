// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/rocm.hpp>

#include "common/driver_result.hpp"
#include "common/exported_memory.hpp"
#include "common/process_driver.hpp"
#include "rocm/rocm_memory.hpp"
#include "rocm/rocm_pointer.hpp"
#include "rocm/rocm_range.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf {
namespace {

using namespace detail::rocm;

using SharedRuntime = std::shared_ptr<const Runtime>;

struct Usable {
    SharedRuntime runtime;
    std::vector<Agent> gpus;
};

ErrorInfo no_such_device(int wanted, std::size_t devices) {
    return {ENODEV, "hsa_iterate_agents",
            "there is no GPU " + std::to_string(wanted) +
                "; number of GPUs that this process sees: " + std::to_string(devices),
            "choose a GPU that exists, or make more GPUs visible: check ROCR_VISIBLE_DEVICES, and "
            "the devices that are passed to the container"};
}

class RocmExporter final : public detail::DriverAllocator<Driver> {
  public:
    explicit RocmExporter(const RocmOptions& options) : options_(options) {}

    [[nodiscard]] std::string_view name() const noexcept override { return name_of_exporter; }

    [[nodiscard]] Availability availability() const override {
        const auto initialised = initialise();
        if (!initialised) {
            return initialised.error_info().availability();
        }
        const auto& [runtime, gpus] = *initialised;
        const Driver& driver = runtime->driver();
        if (const auto error = check_dmabufs(driver)) {
            return error->availability();
        }
        std::string reason = driver.library();
        for (const Agent gpu : gpus) {
            detail::append_device(reason, pci_address(driver, gpu));
        }
        return Availability::yes(std::move(reason));
    }

    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        const Driver* const driver = Driver::of_process().loaded();
        if (driver == nullptr || Runtime::is_parents()) {
            return std::nullopt;
        }
        auto found = find_in(*driver, address);
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
        if (!Runtime::is_parents()) {
            (void)require_pointer(driver, address);
        }
        (void)hold(driver).value();
        const Met met = require_met(driver, address);
        check_exportable(driver, met.pointer);
        return detail::export_unless_freed(
            met.pointer.address,
            [&] {
                const Met now = require_met(driver, met.pointer.address);
                return met.generation == 0 || now.generation == met.generation;
            },
            [&] { return export_from(driver, met.pointer, length, mapping); });
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        Usable usable = initialise().value();
        const Agent gpu = usable.gpus[static_cast<std::size_t>(options_.device)];
        return detail::rocm::allocate(std::move(usable.runtime), gpu, size);
    }

  private:
    std::optional<Allocation> find_in(const Driver& driver, std::uintptr_t address) const {
        if (!holds() && !find_pointer(driver, address)) {
            return std::nullopt;
        }
        // HSA is already initialised: this exporter has a reference, or HSA has reported attributes
        // of the address. In the second case, hold() only adds a reference, which the exporter
        // keeps.
        (void)hold(driver).value();
        const auto met = meet(driver, address);
        if (!met) {
            return std::nullopt;
        }
        return Allocation{.base = met->pointer.base,
                          .length = met->pointer.length,
                          .generation = met->generation,
                          .kind = kind_of(driver, met->pointer),
                          .pci_address = pci_address(driver, met->pointer.owner)};
    }

    bool holds() const {
        const std::lock_guard lock(mutex_);
        return runtime_ != nullptr;
    }
    /// Initialises HSA, and keeps HSA initialised while this exporter exists, because the
    /// generations (numbers of allocations) are valid only during one initialisation.
    Result<SharedRuntime> hold(const Driver& driver) const {
        const std::lock_guard lock(mutex_);
        if (runtime_ == nullptr || Runtime::is_parents()) {
            auto acquired = Runtime::acquire(driver);
            if (!acquired) {
                return acquired;
            }
            runtime_ = *acquired;
        }
        return runtime_;
    }

    Result<Usable> initialise() const {
        auto loaded = Driver::of_process().load();
        if (!loaded) {
            return loaded.error_info();
        }
        const Driver& driver = **loaded;
        auto held = hold(driver);
        if (!held) {
            return held.error_info();
        }
        auto listed = list_gpus(driver);
        if (!listed) {
            return listed.error_info();
        }
        auto& gpus = *listed;
        if (options_.device < 0 || static_cast<std::size_t>(options_.device) >= gpus.size()) {
            return no_such_device(options_.device, gpus.size());
        }
        return Usable{.runtime = *std::move(held), .gpus = std::move(gpus)};
    }

    RocmOptions options_;
    mutable std::mutex mutex_;
    mutable SharedRuntime runtime_;
};

} // namespace

std::shared_ptr<Allocator> make_rocm_exporter(const RocmOptions& options) {
    return std::make_shared<RocmExporter>(options);
}

} // namespace rdmabuf
