// SPDX-License-Identifier: BSD-3-Clause
#include "common/dmabuf_allocator.hpp"

#include <cerrno>
#include <utility>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"
#include "common/buffer_table.hpp"
#include "common/exported_memory.hpp"

namespace rdmabuf::detail {
namespace {

std::uintptr_t start(const Mapping& mapping) noexcept {
    return reinterpret_cast<std::uintptr_t>(mapping.bytes().data());
}

class DmaBufMemory final : public Buffer::Memory {
  public:
    DmaBufMemory(std::shared_ptr<BufferTable> table, UniqueFd dmabuf, Mapping mapping,
                 Allocation allocation, bool synced)
        : table_(std::move(table)),
          dmabuf_(std::move(dmabuf)),
          mapping_(std::move(mapping)),
          synced_(synced) {
        table_->add(std::move(allocation), dmabuf_);
    }
    DmaBufMemory(const DmaBufMemory&) = delete;
    DmaBufMemory& operator=(const DmaBufMemory&) = delete;
    /// The buffer is removed from the table before its address is unmapped, because another thread
    /// may get the same address afterwards.
    ~DmaBufMemory() override { table_->remove(address()); }

    [[nodiscard]] std::uintptr_t address() const noexcept override { return start(mapping_); }
    [[nodiscard]] std::size_t size() const noexcept override { return mapping_.bytes().size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override {
        return mapping_.bytes();
    }
    [[nodiscard]] int sync_fd() const noexcept override { return synced_ ? dmabuf_.get() : -1; }

  private:
    std::shared_ptr<BufferTable> table_;
    UniqueFd dmabuf_;
    Mapping mapping_;
    bool synced_;
};

} // namespace

DmaBufAllocator::DmaBufAllocator(const char* name) : TableExporter(name) {}

Buffer DmaBufAllocator::allocate(std::size_t size) {
    check_allocated(size);
    NewBuffer made = make(round_up_to_pages(size));
    Allocation allocation{.base = start(made.mapping),
                          .length = made.mapping.bytes().size(),
                          .generation = 0,
                          .kind = made.kind,
                          .pci_address = std::move(made.pci_address)};
    return Buffer(std::make_unique<DmaBufMemory>(table_, std::move(made.dmabuf),
                                                 std::move(made.mapping), std::move(allocation),
                                                 made.synced));
}

} // namespace rdmabuf::detail
