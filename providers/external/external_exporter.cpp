// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>

#include <cerrno>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/external.hpp>
#include <rdmabuf/topology.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "common/buffer_table.hpp"
#include "common/exported_memory.hpp"
#include "common/table_exporter.hpp"

namespace rdmabuf {
namespace {

constexpr const char* name_of_exporter = "external";
constexpr const char* function = "add";

std::string describe(const ExternalMemory& memory) {
    return std::to_string(memory.length) + " bytes at " + detail::hexadecimal(memory.address) +
           ", offset " + std::to_string(memory.offset);
}

/// Checks the members of @p memory, except against the size of the dma-buf.
/// @throws Error EINVAL if a member is invalid
void check_added_memory(const ExternalMemory& memory) {
    detail::check_added(memory.address, memory.length, describe(memory));
    if (memory.length > std::numeric_limits<std::uint64_t>::max() - memory.offset) {
        throw Error(
            EINVAL, function,
            describe(memory) + ": the end of the range in the dma-buf does not fit into 64 bits");
    }
    const std::size_t page = detail::page_size();
    if (memory.address % page != memory.offset % page) {
        throw Error(
            EINVAL, function,
            describe(memory) + ": the address lies " + std::to_string(memory.address % page) +
                " bytes into its page and the offset " + std::to_string(memory.offset % page) +
                " bytes into its page; both must be equal (a page has " + std::to_string(page) +
                " bytes), because the address is the iova of the memory region: choose another "
                "address");
    }
    if (!memory.pci_address.empty() && !PciAddress::parse(memory.pci_address)) {
        throw Error(EINVAL, function,
                    "the PCI address '" + memory.pci_address +
                        "' is not a domain, bus, device and function, such as 0000:3b:00.0");
    }
}

UniqueFd duplicate(int fd) {
    UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
        const int error = errno;
        throw Error(error, "fcntl",
                    error == EBADF
                        ? "descriptor " + std::to_string(fd) +
                              " is not open; keep the dma-buf open until the memory is added"
                    : error == EMFILE ? std::string("raise the limit of open files (ulimit -n)")
                                      : std::string());
    }
    return copy;
}

class RangeExporter final : public detail::TableExporter<ExternalExporter> {
  public:
    RangeExporter() : TableExporter(name_of_exporter) {}

    [[nodiscard]] Availability availability() const override {
        return Availability::yes("ranges that the program adds; it has added " +
                                 std::to_string(table_->size()));
    }

    [[nodiscard]] AddedRange add(int fd, const ExternalMemory& memory) override {
        check_added_memory(memory);
        return add_checked(duplicate(fd), memory);
    }

    [[nodiscard]] AddedRange add(UniqueFd fd, const ExternalMemory& memory) override {
        if (!fd) {
            throw Error(EBADF, function, describe(memory) + ": the UniqueFd has no descriptor");
        }
        check_added_memory(memory);
        return add_checked(std::move(fd), memory);
    }

  private:
    [[nodiscard]] AddedRange add_checked(UniqueFd fd, const ExternalMemory& memory) {
        // Linux reports the size of each dma-buf: dma_buf_llseek() in drivers/dma-buf/dma-buf.c.
        const std::uint64_t size = detail::dmabuf_size(fd.get()).value_or(0);
        if (size == 0) {
            throw Error(EINVAL, function,
                        describe(memory) +
                            ": the descriptor is not that of a dma-buf: the file has no bytes");
        }
        if (memory.offset > size || memory.length > size - memory.offset) {
            throw Error(ERANGE, function,
                        describe(memory) + ": the dma-buf has " + std::to_string(size) + " bytes");
        }
        Allocation allocation{.base = memory.address,
                              .length = memory.length,
                              .generation = memory.generation,
                              .kind = memory.kind,
                              .pci_address = memory.pci_address};
        return detail::add_range(table_, std::move(allocation), std::move(fd), memory.offset,
                                 nullptr, memory.mapping);
    }
};

} // namespace

std::shared_ptr<ExternalExporter> make_external_exporter() {
    return std::make_shared<RangeExporter>();
}

} // namespace rdmabuf
