// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/habana.hpp>

#include "base/address_space.hpp"
#include "common/driver_buffer.hpp"
#include "common/exported_memory.hpp"
#include "common/table_exporter.hpp"
#include "habana/synapse.hpp"
#include "habana/thunk.hpp"

namespace rdmabuf {
namespace {

using namespace detail::habana;
using detail::ExportedMemory;

constexpr const char* name_of_exporter = "habana";

/// Returns an empty string if allocate() can be used. Otherwise returns a text with the reason, for
/// example that libSynapse.so is missing. add() works without libSynapse.so.
std::string allocating() {
    const auto loaded = Synapse::of_process().load();
    return loaded ? "" : "; allocate() cannot be used: " + loaded.reason();
}

class DriverExporter final : public detail::TableExporter<HabanaExporter> {
  public:
    explicit DriverExporter(const HabanaOptions& options)
        : TableExporter(name_of_exporter), options_(options) {}

    [[nodiscard]] Availability availability() const override {
        const auto loaded = Thunk::of_process().load();
        if (!loaded) {
            return loaded.error_info().availability();
        }
        const Thunk& thunk = **loaded;
        return options_.fd >= 0 ? availability_of_device(thunk) : availability_of_any(thunk);
    }

    [[nodiscard]] AddedRange add(const HabanaMemory& memory) override {
        check_numbers(memory);
        const Thunk& thunk = *Thunk::of_process().load().value();
        if (options_.fd < 0) {
            throw Error(ENODEV, "add",
                        describe(memory) +
                            ": the exporter has no device; make it with the descriptor of the open "
                            "device, HabanaOptions::fd");
        }
        const DeviceName device = thunk.device(options_.fd).value();
        ExportedMemory exported = thunk.export_memory(options_.fd, device, memory);
        return detail::add_range(table_,
                                 {.base = memory.address,
                                  .length = memory.length,
                                  .generation = memory.generation,
                                  .kind = MemoryKind::device,
                                  .pci_address = thunk.pci_address(options_.fd)},
                                 std::move(exported.fd), exported.offset);
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        const std::size_t whole = detail::round_up_to_pages(size);
        if (options_.fd >= 0) {
            throw Error(ENOTSUP, "allocate",
                        "the program has opened this device itself (HabanaOptions::fd): allocate "
                        "the memory in the program, and add() it");
        }
        const Thunk& thunk = *Thunk::of_process().load().value();
        const Synapse& synapse = *Synapse::of_process().load().value();
        return make_buffer(thunk, std::make_shared<SynapseMemory>(synapse, whole));
    }

  private:
    static void check_numbers(const HabanaMemory& memory) {
        detail::check_added(memory.address, memory.length, describe(memory));
        if (memory.mapping > memory.address) {
            throw Error(EINVAL, "add",
                        describe(memory) + ": the mapping begins after the start of the memory");
        }
    }

    [[nodiscard]] Availability availability_of_device(const Thunk& thunk) const {
        const auto device = thunk.device(options_.fd);
        if (!device) {
            return device.error_info().availability();
        }
        return Availability::yes(thunk.library() + ", the program's " +
                                 (is_gaudi1(*device) ? "Gaudi 1 " : "Gaudi ") +
                                 thunk.pci_address(options_.fd));
    }

    [[nodiscard]] static Availability availability_of_any(const Thunk& thunk) {
        std::string list;
        for (const std::string& address : thunk.pci_addresses()) {
            list.append(list.empty() ? "" : ", ").append(address);
        }
        if (list.empty()) {
            return Availability::no(
                thunk.library() + " finds no device",
                "check that the kernel module habanalabs is loaded, and that this process can open "
                "/dev/accel/accel_controlD0 or /dev/hl_controlD0");
        }
        return Availability::yes(thunk.library() + ", " + list + allocating());
    }

    [[nodiscard]] Buffer make_buffer(const Thunk& thunk,
                                     std::shared_ptr<SynapseMemory> memory) const {
        const SharedDevice& device = memory->device();
        const DeviceName name = thunk.device(device->fd()).value();
        ExportedMemory exported = thunk.export_memory(
            device->fd(), name,
            {.address = memory->address(), .length = memory->size(), .mapping = device->mapping()},
            device->reach(memory->address() + memory->size()));
        Allocation allocation{.base = memory->address(),
                              .length = memory->size(),
                              .pci_address = thunk.pci_address(device->fd())};
        return Buffer(std::make_unique<detail::DriverBuffer<SynapseMemory>>(
            table_, memory, std::move(allocation), std::move(exported.fd), exported.offset,
            memory));
    }

    HabanaOptions options_;
};

} // namespace

std::shared_ptr<HabanaExporter> make_habana_exporter(const HabanaOptions& options) {
    return std::make_shared<DriverExporter>(options);
}

} // namespace rdmabuf
