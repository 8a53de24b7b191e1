// SPDX-License-Identifier: BSD-3-Clause
#include "bar_allocator.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <span>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "support.hpp"

namespace rdmabuf::testing {
namespace {

constexpr unsigned region_shift = 40; // as VFIO_DEVICE_GET_REGION_INFO tells it

UniqueFd open_device(const std::string& path) {
    UniqueFd device(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!device) {
        throw Error(errno, "open", path);
    }
    return device;
}

class Pages {
  public:
    Pages(int device, std::size_t size, std::uint64_t place)
        : size_(size),
          start_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, device,
                        static_cast<off_t>(place))) {
        if (start_ == MAP_FAILED) {
            throw Error(errno, "mmap");
        }
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { ::munmap(start_, size_); }

    [[nodiscard]] std::span<std::byte> bytes() const {
        return {static_cast<std::byte*>(start_), size_};
    }

  private:
    std::size_t size_;
    void* start_;
};

class BarMemory final : public Buffer::Memory {
  public:
    BarMemory(std::unique_ptr<Pages> pages, VfioExporter& exporter, std::uint32_t bar,
              std::uint64_t offset)
        : pages_(std::move(pages)),
          range_(exporter.add(
              {.index = bar, .offset = offset, .length = size(), .address = address()})),
          dmabuf_(exporter.export_range(address(), size())) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override {
        return reinterpret_cast<std::uintptr_t>(pages_->bytes().data());
    }
    [[nodiscard]] std::size_t size() const noexcept override { return pages_->bytes().size(); }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return pages_->bytes(); }
    [[nodiscard]] int sync_fd() const noexcept override { return dmabuf_.fd(); }

  private:
    std::unique_ptr<Pages> pages_;
    AddedRange range_;
    ExportedRange dmabuf_;
};

} // namespace

Buffer BarAllocator::allocate(std::size_t size) {
    if (size == 0) {
        throw Error(EINVAL, "allocate", "0 bytes");
    }
    if (size > std::size_t{1} << region_shift) {
        throw Error(ENOMEM, "allocate", std::to_string(size) + " bytes");
    }
    const UniqueFd device = open_device(path_);
    const std::size_t whole = (size + page_size() - 1) / page_size() * page_size();
    const std::uint64_t offset = next_.fetch_add(whole);
    auto pages = std::make_unique<Pages>(device.get(), whole,
                                         (std::uint64_t{bar_} << region_shift) | offset);
    return Buffer(std::make_unique<BarMemory>(std::move(pages), *exporter_, bar_, offset));
}

} // namespace rdmabuf::testing
