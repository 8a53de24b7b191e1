// SPDX-License-Identifier: BSD-3-Clause
#include "level_zero/level_zero_memory.hpp"

#include <cerrno>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>

#include "base/address_space.hpp"

namespace rdmabuf::detail::level_zero {
namespace {

/// Owns memory that zeMemAllocDevice allocated.
class Allocated {
  public:
    Allocated(const Driver& driver, Context context, Device device, std::size_t size)
        : functions_(&driver.functions()), context_(context) {
        const ExportDesc exported;
        const DeviceMemDesc desc{.next = &exported};
        Driver::check(
            functions_->mem_alloc_device(context, &desc, size, page_size(), device, &address_),
            "zeMemAllocDevice",
            std::to_string(size) + " bytes for export as a dma-buf were requested");
    }
    ~Allocated() { report_teardown(functions_->mem_free(context_, address_), "zeMemFree"); }
    Allocated(const Allocated&) = delete;
    Allocated& operator=(const Allocated&) = delete;

    [[nodiscard]] std::byte* address() const noexcept { return static_cast<std::byte*>(address_); }

  private:
    const Functions* functions_;
    Context context_;
    void* address_ = nullptr;
};

/// Returns the ordinal of the GPU's first queue group that can copy memory.
std::uint32_t copying_queues(const Driver& driver, Device device) {
    constexpr const char* function = "zeDeviceGetCommandQueueGroupProperties";
    const auto get = driver.functions().device_get_queue_group_properties;
    std::uint32_t count = 0;
    Driver::check(get(device, &count, nullptr), function,
                  "the GPU's queue groups, which copies need, cannot be queried");
    std::vector<QueueGroupProperties> groups(count);
    Driver::check(get(device, &count, groups.data()), function,
                  "the GPU's queue groups, which copies need, cannot be queried");
    for (std::uint32_t group = 0; group < count; ++group) {
        if ((groups[group].flags & queue_group_copies) != 0) {
            return group;
        }
    }
    throw Error(EOPNOTSUPP, function,
                "none of the GPU's " + std::to_string(count) + " queue groups can copy memory");
}

/// Owns an immediate command list in synchronous mode: each call returns when its command is
/// complete.
class Commands {
  public:
    Commands(const Driver& driver, Context context, Device device)
        : functions_(&driver.functions()) {
        const QueueDesc desc{.ordinal = copying_queues(driver, device), .mode = queue_synchronous};
        Driver::check(functions_->command_list_create_immediate(context, device, &desc, &list_),
                      "zeCommandListCreateImmediate",
                      "a command list, which copies need, cannot be created");
    }
    ~Commands() {
        report_teardown(functions_->command_list_destroy(list_), "zeCommandListDestroy");
    }
    Commands(const Commands&) = delete;
    Commands& operator=(const Commands&) = delete;

    void copy(void* to, const void* from, std::size_t size) const {
        Driver::check(
            functions_->command_list_append_memory_copy(list_, to, from, size, nullptr, 0, nullptr),
            "zeCommandListAppendMemoryCopy",
            std::to_string(size) + " bytes could not be copied to or from the GPU");
    }

  private:
    const Functions* functions_;
    CommandList list_ = nullptr;
};

class LevelZeroMemory final : public Buffer::Memory {
  public:
    LevelZeroMemory(const Driver& driver, const Gpu& gpu, std::size_t size)
        : driver_(&driver),
          context_(driver.context_of(gpu.driver)),
          device_(gpu.device),
          size_(size),
          allocated_(driver, context_, device_, size) {}

    [[nodiscard]] std::uintptr_t address() const noexcept override {
        return reinterpret_cast<std::uintptr_t>(allocated_.address());
    }
    [[nodiscard]] std::size_t size() const noexcept override { return size_; }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }

    // Command lists are not thread safe, so each copy creates a command list of its own.
    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        Commands(*driver_, context_, device_)
            .copy(allocated_.address() + offset, source.data(), source.size());
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        Commands(*driver_, context_, device_)
            .copy(destination.data(), allocated_.address() + offset, destination.size());
    }

  private:
    const Driver* driver_;
    Context context_;
    Device device_;
    std::size_t size_;
    Allocated allocated_;
};

} // namespace

Buffer allocate(const Driver& driver, const Gpu& gpu, std::size_t size) {
    return Buffer(std::make_unique<LevelZeroMemory>(driver, gpu, round_up_to_pages(size)));
}

} // namespace rdmabuf::detail::level_zero
