// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include <rdmabuf/providers/habana.hpp>

#include "common/exported_memory.hpp"
#include "drivers/driver_fixture.hpp"
#include "drivers/load_error.hpp"
#include "fake_habana.hpp"
#include "habana/thunk.hpp"

namespace rdmabuf::testing {
namespace {

/// Lets the exporter have the shared tests, although it allocates no memory: memory of the program
/// is added to it.
class AddingAllocator final : public Allocator {
  public:
    [[nodiscard]] std::string_view name() const noexcept override { return exporter_->name(); }
    [[nodiscard]] Availability availability() const override { return exporter_->availability(); }
    [[nodiscard]] std::optional<Allocation> find(std::uintptr_t address) const override {
        return exporter_->find(address);
    }
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping) const override {
        return exporter_->export_range(address, length, mapping);
    }
    [[nodiscard]] Buffer allocate(std::size_t size) override {
        detail::check_allocated(size);
        if (size > std::size_t{1} << 40U) {
            throw Error(ENOMEM, "allocate", std::to_string(size) + " bytes were requested");
        }
        return Buffer(std::make_unique<Added>(
            *exporter_, (size + page_size() - 1) / page_size() * page_size()));
    }
    [[nodiscard]] HabanaExporter& exporter() const { return *exporter_; }

  private:
    class Added final : public Buffer::Memory {
      public:
        Added(HabanaExporter& exporter, std::size_t size)
            : size_(size),
              address_(fake::make(fake::Kind::device, size)),
              added_(exporter.add({.address = address_.value, .length = size})) {}
        [[nodiscard]] std::uintptr_t address() const noexcept override { return address_.value; }
        [[nodiscard]] std::size_t size() const noexcept override { return size_; }
        [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
        [[nodiscard]] int sync_fd() const noexcept override { return -1; }
        void copy_in(std::size_t offset, std::span<const std::byte> source) override {
            std::memcpy(fake::bytes(address() + offset), source.data(), source.size());
        }
        void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
            std::memcpy(destination.data(), fake::bytes(address() + offset), destination.size());
        }

      private:
        struct Address {
            explicit Address(std::uint64_t made) : value(made) {}
            Address(const Address&) = delete;
            Address& operator=(const Address&) = delete;
            ~Address() { fake::free(value); }
            std::uint64_t value;
        };

        std::size_t size_;
        Address address_;
        AddedRange added_;
    };

    std::shared_ptr<HabanaExporter> exporter_ =
        make_habana_exporter({.fd = fake_habana::open(detail::habana::DeviceName::gaudi2)});
};

} // namespace

const DriverRow& driver_row() {
    using namespace detail::habana;
    static const std::string export_call = "hlthunk_device_mapped_memory_export_dmabuf_fd";
    static const DriverRow row{
        .name = "habana",
        .make = [](int /*device*/) { return std::make_shared<AddingAllocator>(); },
        .add =
            [](Allocator& exporter, std::uintptr_t address, std::size_t length,
               std::uint64_t generation) {
                return dynamic_cast<AddingAllocator&>(exporter).exporter().add(
                    {.address = address,
                     .length = length,
                     .mapping = fake::block_of(address),
                     .generation = generation});
            },
        .libraries = {{.load = load_error<Thunk>,
                       .absent = "the Habana driver",
                       .install = "install habanalabs-thunk",
                       .lacks = {export_call + " (available since Gaudi 2)"},
                       .has = {"hlthunk_close"},
                       .old = LACKING_DRIVER}},
        .no_device = "libhl-thunk.so finds no device",
        .no_device_remedy = "/dev/accel/accel_controlD0",
        .available = "libhl-thunk.so, the program's Gaudi 0000:33:00.0",
        .allocate_failures = {{export_call, -ENOMEM, ENOMEM, ""}},
        .export_failures = {{export_call, -EBUSY, EBUSY, "being reset"}},
        .export_call = export_call,
        .no_descriptor = {"", 0, ENOMEM, ""},
        .packs = true,
        .exports_more = true,
        .kinds = {{fake::Kind::device, MemoryKind::device, "0000:33:00.0"}},
    };
    return row;
}

} // namespace rdmabuf::testing
