// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/verbs_dm.hpp>

#include "base/address_space.hpp"
#include "common/buffer_table.hpp"
#include "common/device_node.hpp"
#include "common/exported_memory.hpp"
#include "common/mapping.hpp"
#include "common/table_exporter.hpp"

namespace rdmabuf {
namespace {

constexpr const char* name_of_exporter = "verbs_dm";
constexpr const char* export_call = "ibv_dm_export_dmabuf_fd";

/// Type of ibv_dm_export_dmabuf_fd, which older rdma-core headers do not declare. find_export()
/// returns the function, or null if libibverbs does not have the function.
using ExportDm = int (*)(ibv_dm*);
ExportDm find_export() noexcept {
    return reinterpret_cast<ExportDm>(::dlvsym(RTLD_DEFAULT, export_call, "IBVERBS_1.16"));
}

/// NIC memory is copied in units of 4 bytes: see DeviceMemory::copy_in().
constexpr std::size_t copy_unit = 4;

/// Holds NIC memory, and the reserved address range that identifies this memory.
struct NicMemory {
    DeviceMemory memory;
    detail::ReservedAddresses addresses;
};

struct Exported {
    std::shared_ptr<NicMemory> nic;
    UniqueFd dmabuf;
};

/// Allocates NIC memory. It begins at a page boundary if the NIC supports that alignment.
DeviceMemory allocate(const Context& context, std::size_t size) {
    try {
        const auto page_bits = static_cast<std::uint32_t>(std::countr_zero(detail::page_size()));
        return DeviceMemory(context, size, {.log2_alignment = page_bits});
    } catch (const Error& error) {
        if (error.error() != EINVAL) {
            throw;
        }
    }
    return DeviceMemory(context, size);
}

Result<DeviceMemory> try_to_allocate(const Context& context, std::size_t size) {
    try {
        return allocate(context, size);
    } catch (const Error& error) {
        const char* remedy = "";
        if (error.error() == EOPNOTSUPP || context.attributes().max_dm_size() == 0) {
            remedy = "use a NIC that has device memory, such as ConnectX-5 or newer";
        } else if (error.error() == EINVAL) {
            remedy = "allocate less memory";
        } else if (error.error() == ENOMEM) {
            remedy = "free memory on the NIC: all processes share it, in units of pages";
        }
        return ErrorInfo{error.error(), error.function(), error.hint(), remedy};
    }
}

ErrorInfo no_export(const Context& context, int error) {
    const std::string device = context.device_name();
    switch (error) {
        case EPROTONOSUPPORT:
            return {error, export_call,
                    "this kernel's uverbs cannot export the memory of " + device,
                    "use Linux 7.0 or newer"};
        case EOPNOTSUPP:
            return {error, export_call,
                    "the kernel, or the rdma-core provider of " + device +
                        ", does not export its memory",
                    "use a kernel with CONFIG_PCI_P2PDMA, and a device whose rdma-core provider "
                    "supports the export: mlx5"};
        default:
            return {error, export_call,
                    "the memory of " + device + " cannot be exported: " + describe_errno(error)};
    }
}

/// Allocates NIC memory and exports it.
/// @param size  in bytes; a multiple of the page size
Result<Exported> try_to_make(const Context& context, std::size_t size) {
    const ExportDm export_dm = find_export();
    if (export_dm == nullptr) {
        return ErrorInfo{ENOSYS, export_call,
                         "libibverbs has no ibv_dm_export_dmabuf_fd (IBVERBS_1.16)",
                         "use rdma-core 62 or newer"};
    }
    auto memory = try_to_allocate(context, size);
    if (!memory) {
        return memory.error_info();
    }
    auto nic = std::make_shared<NicMemory>(NicMemory{
        .memory = *std::move(memory),
        .addresses = detail::ReservedAddresses(size),
    });
    errno = 0;
    UniqueFd dmabuf(export_dm(nic->memory.native()));
    if (!dmabuf) {
        return no_export(context, errno != 0 ? errno : EIO);
    }
    if (const auto exported = detail::dmabuf_size(dmabuf.get()); exported != size) {
        return ErrorInfo{ENOTSUP, export_call,
                         "a dma-buf of " + (exported ? std::to_string(*exported) : "unknown") +
                             " bytes was returned for " + std::to_string(size) +
                             " bytes of memory of " + context.device_name() +
                             ": the offset of the memory in the dma-buf is not known",
                         "register the memory itself instead, with DeviceMemoryMR"};
    }
    return Exported{std::move(nic), std::move(dmabuf)};
}

class NicBuffer final : public Buffer::Memory {
  public:
    NicBuffer(std::shared_ptr<detail::BufferTable> table, Exported made, std::string pci_address)
        : nic_(std::move(made.nic)),
          range_(std::move(table),
                 {.base = nic_->addresses.start(),
                  .length = nic_->memory.size(),
                  .generation = 0,
                  .kind = MemoryKind::device,
                  .pci_address = std::move(pci_address)},
                 std::move(made.dmabuf), 0, nic_) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override {
        return nic_->addresses.start();
    }
    [[nodiscard]] std::size_t size() const noexcept override { return nic_->memory.size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }

    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        if (in_units(offset, source)) {
            nic_->memory.copy_in(offset, source);
            return;
        }
        Words words{};
        while (!source.empty()) {
            const Window window(offset, source.size());
            const auto covered = std::span(words.bytes).first(window.length);
            if (window.partial()) {
                nic_->memory.copy_out(window.start, covered);
            }
            std::ranges::copy(source.first(window.wanted), covered.subspan(window.lead).begin());
            nic_->memory.copy_in(window.start, covered);
            source = source.subspan(window.wanted);
            offset += window.wanted;
        }
    }

    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        if (in_units(offset, destination)) {
            nic_->memory.copy_out(offset, destination);
            return;
        }
        Words words{};
        while (!destination.empty()) {
            const Window window(offset, destination.size());
            const auto covered = std::span(words.bytes).first(window.length);
            nic_->memory.copy_out(window.start, covered);
            std::ranges::copy(covered.subspan(window.lead, window.wanted), destination.begin());
            destination = destination.subspan(window.wanted);
            offset += window.wanted;
        }
    }

  private:
    struct Words {
        alignas(copy_unit) std::array<std::byte, 4096> bytes;
    };
    /// Describes one step of a copy, of at most sizeof(Words) bytes. The range of the step is
    /// extended at its start and at its end to whole units of 4 bytes.
    struct Window {
        Window(std::size_t offset, std::size_t left) noexcept
            : lead(offset % copy_unit),
              start(offset - lead),
              wanted(std::min(left, sizeof(Words) - lead)),
              length((lead + wanted + copy_unit - 1) / copy_unit * copy_unit) {}
        [[nodiscard]] bool partial() const noexcept { return wanted != length; }
        std::size_t lead;
        std::size_t start;
        std::size_t wanted;
        std::size_t length;
    };
    static bool in_units(std::size_t offset, std::span<const std::byte> host) noexcept {
        return (offset | host.size() | reinterpret_cast<std::uintptr_t>(host.data())) % copy_unit ==
               0;
    }

    std::shared_ptr<NicMemory> nic_;
    detail::TableRange range_;
};

/// Returns the PCI address of the NIC. The result is empty if the NIC is not on a PCI bus, for
/// example for a NIC of softverbs.
std::string pci_address_of(const Context& context) {
    const std::string device = std::string(context.native()->device->ibdev_path) + "/device";
    return detail::link_name(device + "/subsystem") == "pci" ? detail::link_name(device)
                                                             : std::string();
}

class VerbsDmExporter final : public detail::TableExporter<Allocator> {
  public:
    explicit VerbsDmExporter(const Context& context)
        : TableExporter(name_of_exporter),
          context_(context),
          pci_address_(pci_address_of(context)) {}

    [[nodiscard]] Availability availability() const override {
        try {
            const auto made = try_to_make(context_, detail::page_size());
            const std::string device = "the memory of " + context_.device_name();
            if (made) {
                return Availability::yes(
                    device + ", " + std::to_string(context_.attributes().max_dm_size()) + " bytes");
            }
            return made.error() == ENOMEM
                       ? Availability::yes(device +
                                           ", which is all in use now: the export was not tested")
                       : made.error_info().availability();
        } catch (const Error& error) {
            return Availability::no(error.what());
        }
    }

    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        return Buffer(std::make_unique<NicBuffer>(
            table_, try_to_make(context_, detail::round_up_to_pages(size)).value(), pci_address_));
    }

  private:
    Context context_;
    std::string pci_address_;
};

} // namespace

std::shared_ptr<Allocator> make_verbs_dm_exporter(const Context& context) {
    return std::make_shared<VerbsDmExporter>(context);
}

} // namespace rdmabuf
