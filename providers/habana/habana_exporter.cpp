// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/habana.hpp>

#include "common/driver_result.hpp"
#include "common/exported_memory.hpp"
#include "common/table_exporter.hpp"
#include "habana/thunk.hpp"

namespace rdmabuf {
namespace {

using namespace detail::habana;

constexpr const char* name_of_exporter = "habana";

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
        if (const auto error = thunk.check_device(options_.fd)) {
            error->raise();
        }
        detail::ExportedMemory exported = thunk.export_memory(options_.fd, memory);
        return detail::add_range(table_,
                                 {.base = memory.address,
                                  .length = memory.length,
                                  .generation = memory.generation,
                                  .kind = MemoryKind::device,
                                  .pci_address = thunk.pci_address(options_.fd)},
                                 std::move(exported.fd), exported.offset);
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
        if (const auto error = thunk.check_device(options_.fd)) {
            return error->availability();
        }
        const std::string address = thunk.pci_address(options_.fd);
        return Availability::yes(thunk.library() + ", the program's Gaudi" +
                                 (address.empty() ? "" : " " + address));
    }

    [[nodiscard]] static Availability availability_of_any(const Thunk& thunk) {
        std::string list;
        for (const std::string& address : thunk.pci_addresses()) {
            detail::append_device(list, address);
        }
        if (list.empty()) {
            return Availability::no(
                thunk.library() + " finds no device",
                "check that the kernel module habanalabs is loaded, and that this process can open "
                "/dev/accel/accel_controlD0 or /dev/hl_controlD0");
        }
        return Availability::yes(thunk.library() + ", " + list);
    }

    HabanaOptions options_;
};

} // namespace

std::shared_ptr<HabanaExporter> make_habana_exporter(const HabanaOptions& options) {
    return std::make_shared<DriverExporter>(options);
}

} // namespace rdmabuf
