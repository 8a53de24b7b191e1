// SPDX-License-Identifier: BSD-3-Clause
// Exporters that are no part of rdmabuf.
#include "plugin.hpp"

#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string_view>

#include <rdmabuf/rdmabuf.hpp>

namespace {

using namespace rdmabuf;

template <class Base>
class Outside : public Base {
  public:
    explicit Outside(std::string_view name) : name_(name) {}

    std::string_view name() const noexcept override { return name_; }
    Availability availability() const override { return Availability::yes(); }
    std::optional<Allocation> find(std::uintptr_t address) const override {
        if (address == failing_address) {
            throw Error(ENODEV, "Outside::find", "the device was removed");
        }
        if (address == known_address) {
            return Allocation{.base = address, .length = 4096};
        }
        return std::nullopt;
    }
    ExportedRange export_range(std::uintptr_t address, std::size_t length,
                               MappingKind /*mapping*/) const override {
        return {"outside", UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), 0, length, address};
    }

  private:
    std::string_view name_;
};

class OutsideAllocator final : public Outside<Allocator> {
  public:
    using Outside::Outside;
    Buffer allocate(std::size_t /*size*/) override {
        throw Error(ENOMEM, "OutsideAllocator::allocate");
    }
};

} // namespace

extern "C" {

[[gnu::visibility("default")]] void add_exporters(Resolver* resolver) {
    resolver->add(std::make_shared<Outside<Exporter>>("outside"));
    resolver->add(std::make_shared<OutsideAllocator>("outside_allocator"));
}

[[gnu::visibility("default")]] int catch_error_of(void (*function)()) {
    try {
        function();
    } catch (const Error& error) {
        return error.code().value();
    } catch (...) {
        return -1;
    }
    return 0;
}
}
