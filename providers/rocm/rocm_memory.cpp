// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_memory.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/address_space.hpp"
#include "rocm/rocm_runtime.hpp"

namespace rdmabuf::detail::rocm {
namespace {

class RocmMemory final : public Buffer::Memory {
  public:
    RocmMemory(std::shared_ptr<const Runtime> runtime, MemoryPool pool, std::size_t size)
        : runtime_(std::move(runtime)), size_(size) {
        runtime_->driver().check(functions().memory_pool_allocate(pool, size, 0, &start_),
                                 "hsa_amd_memory_pool_allocate",
                                 std::to_string(size) + " bytes were requested");
    }
    ~RocmMemory() override {
        if (!Runtime::is_parents()) {
            report_teardown(functions().memory_pool_free(start_), "hsa_amd_memory_pool_free");
        }
    }
    RocmMemory(const RocmMemory&) = delete;
    RocmMemory& operator=(const RocmMemory&) = delete;

    [[nodiscard]] std::uintptr_t address() const noexcept override {
        return reinterpret_cast<std::uintptr_t>(start_);
    }
    [[nodiscard]] std::size_t size() const noexcept override { return size_; }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }

    // HSA pins the program's memory during the copy, so the program need not register it with HSA.
    // HSA pins for writing, but the source can be read-only. The source is therefore first copied
    // to a writable buffer.
    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        constexpr std::size_t most = std::size_t{1} << 20U;
        std::vector<std::byte> writable(std::min(source.size(), most));
        while (!source.empty()) {
            const auto part = source.first(std::min(source.size(), writable.size()));
            std::ranges::copy(part, writable.begin());
            runtime_->driver().check(
                functions().memory_copy(pointer_to(address() + offset), writable.data(),
                                        part.size()),
                "hsa_memory_copy",
                std::to_string(part.size()) + " bytes could not be copied to the device");
            offset += part.size();
            source = source.subspan(part.size());
        }
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        runtime_->driver().check(
            functions().memory_copy(destination.data(), pointer_to(address() + offset),
                                    destination.size()),
            "hsa_memory_copy",
            std::to_string(destination.size()) + " bytes could not be copied from the device");
    }

  private:
    [[nodiscard]] const Functions& functions() const noexcept {
        return runtime_->driver().functions();
    }

    std::shared_ptr<const Runtime> runtime_;
    std::size_t size_;
    void* start_ = nullptr;
};

} // namespace

Buffer allocate(std::shared_ptr<const Runtime> runtime, Agent gpu, std::size_t size) {
    const MemoryPool pool = device_pool(runtime->driver(), gpu);
    return Buffer(std::make_unique<RocmMemory>(std::move(runtime), pool, round_up_to_pages(size)));
}

} // namespace rdmabuf::detail::rocm
