// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/neuron.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/exported_memory.hpp"
#include "common/table_exporter.hpp"
#include "neuron/neuron_memory.hpp"

namespace rdmabuf {
namespace {

using namespace detail::neuron;

constexpr const char* name_of_exporter = "neuron";

/// Returns the number of NeuronCores. Returns the error ENODEV if no NeuronCore has the index @p
/// wanted, and the errno for the status of the runtime if the NeuronCores cannot be counted. Can be
/// called before nrt_init(), which reserves NeuronCores.
Result<std::uint32_t> count_cores(const Driver& driver, int wanted) {
    constexpr const char* call = "nrt_get_total_nc_count";
    std::uint32_t count = 0;
    if (const NrtStatus counted = driver.functions().get_total_core_count(&count);
        counted != success) {
        return ErrorInfo{errno_of(counted), call,
                         "the NeuronCores cannot be counted: " + name_of(counted),
                         "check that aws-neuronx-dkms is installed, that its kernel module neuron "
                         "is loaded, and that this process can open /dev/neuron0"};
    }
    if (wanted < 0 || static_cast<std::uint32_t>(wanted) >= count) {
        return ErrorInfo{ENODEV, call,
                         "there is no NeuronCore " + std::to_string(wanted) +
                             "; number of NeuronCores: " + std::to_string(count),
                         "choose a NeuronCore that exists, or pass /dev/neuron0 to the container"};
    }
    return count;
}

/// Implements a buffer in the memory of a tensor. The buffer is in the BufferTable of its exporter
/// while this object exists. Exported ranges keep the tensor alive.
class TensorBuffer final : public Buffer::Memory {
  public:
    TensorBuffer(std::shared_ptr<detail::BufferTable> table, std::shared_ptr<TensorMemory> memory,
                 Allocation allocation, detail::BufferTable::Place place)
        : memory_(std::move(memory)),
          range_(std::move(table), std::move(allocation), std::move(place)) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override { return memory_->address(); }
    [[nodiscard]] std::size_t size() const noexcept override { return memory_->size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }
    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        memory_->copy_in(offset, source);
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        memory_->copy_out(offset, destination);
    }

  private:
    std::shared_ptr<TensorMemory> memory_;
    detail::TableRange range_;
};

/// Returns a Place that exports the allocation anew each time, because the kernel module permits
/// only one import of a dma-buf. Exports the allocation once, to check that the runtime can export
/// it.
detail::BufferTable::Place place_of(const Driver& driver, const Allocation& allocation,
                                    std::shared_ptr<const void> keep = nullptr) {
    const std::uintptr_t base = allocation.base;
    const std::size_t whole = allocation.length;
    static_cast<void>(driver.export_memory(base, whole));
    return {.export_anew =
                [&driver, base, whole](std::uintptr_t address, std::size_t length) {
                    if (driver.functions().get_dmabuf_fd_v2 != nullptr) {
                        return driver.export_memory(address, length);
                    }
                    // nrt_get_dmabuf_fd exports only from the start of an allocation, so export all
                    // of it.
                    detail::ExportedMemory exported = driver.export_memory(base, whole);
                    exported.offset += address - base;
                    return exported;
                },
            .keep = std::move(keep)};
}

class RuntimeExporter final : public detail::TableExporter<NeuronExporter> {
  public:
    explicit RuntimeExporter(const NeuronOptions& options)
        : TableExporter(name_of_exporter), options_(options) {}

    [[nodiscard]] Availability availability() const override {
        const auto loaded = Driver::of_process().load();
        if (!loaded) {
            return loaded.error_info().availability();
        }
        const Driver& driver = **loaded;
        const auto counted = count_cores(driver, options_.core);
        if (!counted) {
            return counted.error_info().availability();
        }
        const std::string version = driver.version();
        return Availability::yes(driver.library() + (version.empty() ? "" : " " + version) +
                                 ", NeuronCores: " + std::to_string(*counted) +
                                 (driver.functions().get_dmabuf_fd_v2 != nullptr
                                      ? ""
                                      : ", without nrt_get_dmabuf_fd_v2: whole allocations only"));
    }

    [[nodiscard]] AddedRange add(const NeuronMemory& memory) override {
        detail::check_added(
            memory.address, memory.length,
            std::to_string(memory.length) + " bytes at " + detail::hexadecimal(memory.address));
        const Driver& driver = *Driver::of_process().load().value();
        const Allocation allocation{.base = memory.address,
                                    .length = memory.length,
                                    .generation = memory.generation,
                                    .pci_address = memory.pci_address,
                                    .single_import = true};
        return detail::add_range(table_, allocation, place_of(driver, allocation));
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        const std::size_t whole = detail::round_up_to_pages(size);
        const Driver& driver = *Driver::of_process().load().value();
        (void)count_cores(driver, options_.core).value();
        auto memory = std::make_shared<TensorMemory>(driver, options_.core, whole);
        const Allocation allocation{
            .base = memory->address(), .length = memory->size(), .single_import = true};
        return Buffer(std::make_unique<TensorBuffer>(table_, memory, allocation,
                                                     place_of(driver, allocation, memory)));
    }

  private:
    NeuronOptions options_;
};

} // namespace

std::shared_ptr<NeuronExporter> make_neuron_exporter(const NeuronOptions& options) {
    return std::make_shared<RuntimeExporter>(options);
}

} // namespace rdmabuf
