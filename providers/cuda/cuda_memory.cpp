// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/cuda_memory.hpp"

#include <string>

#include "base/address_space.hpp"
#include "cuda/cuda_flush.hpp"

namespace rdmabuf::detail::cuda {
namespace {

/// Owns an allocation of cuMemAlloc. The constructor must run while @p context is current.
class Allocated {
  public:
    Allocated(const Driver& driver, Context context, std::size_t size)
        : driver_(&driver), context_(context) {
        driver.check(driver.functions().mem_alloc(&address_, size), "cuMemAlloc",
                     std::to_string(size) + " bytes were requested");
    }
    ~Allocated() {
        const Functions& functions = driver_->functions();
        // CurrentContext can throw, so this destructor does not use it. If cuCtxPushCurrent fails
        // because the context has been destroyed, the memory is already freed.
        const Result pushed = functions.context_push_current(context_);
        if (pushed != success) {
            report_teardown(pushed, "cuCtxPushCurrent");
            return;
        }
        int mode = capture_mode_relaxed;
        exchange_capture_mode(functions, mode);
        report_teardown(functions.mem_free(address_), "cuMemFree");
        exchange_capture_mode(functions, mode);
        Context popped = nullptr;
        report_teardown(functions.context_pop_current(&popped), "cuCtxPopCurrent");
    }
    Allocated(const Allocated&) = delete;
    Allocated& operator=(const Allocated&) = delete;

    [[nodiscard]] DevicePointer address() const noexcept { return address_; }

  private:
    const Driver* driver_;
    Context context_;
    DevicePointer address_ = 0;
};

/// Owns a stream for one copy. A copy in the legacy stream would invalidate a stream capture (CUDA
/// graph) of the program. The context of the stream must be current.
class CopyStream {
  public:
    explicit CopyStream(const Driver& driver) : driver_(&driver) {
        driver.check(driver.functions().stream_create(&stream_, stream_non_blocking),
                     "cuStreamCreate", "a stream for a copy cannot be created");
    }
    ~CopyStream() {
        report_teardown(driver_->functions().stream_destroy(stream_), "cuStreamDestroy");
    }
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    [[nodiscard]] Stream get() const noexcept { return stream_; }
    /// Waits until the copy is complete.
    /// @param begun  result of the call that has begun the copy
    void finish(Result begun, const char* call, const std::string& hint) const {
        driver_->check(begun, call, hint);
        driver_->check(driver_->functions().stream_synchronize(stream_), "cuStreamSynchronize",
                       hint);
    }

  private:
    const Driver* driver_;
    Stream stream_ = nullptr;
};

class CudaMemory final : public Buffer::Memory {
  public:
    CudaMemory(const Driver& driver, Device device, std::size_t size)
        : driver_(&driver), device_(device), size_(size), context_(driver, device) {
        const CurrentContext current(driver, context_.get());
        allocated_.emplace(driver, context_.get(), size);
        // The driver can place several small allocations in one page, and the dma-buf of this page
        // would contain all of them. The buffer must therefore consist of whole pages.
        if (allocated_->address() % page_size() != 0) {
            allocated_.emplace(driver, context_.get(), round_up_to_pages(size + 1));
        }
        address_ = (allocated_->address() + page_size() - 1) / page_size() * page_size();
    }

    [[nodiscard]] std::uintptr_t address() const noexcept override { return address_; }
    [[nodiscard]] std::size_t size() const noexcept override { return size_; }
    [[nodiscard]] std::span<std::byte> mapping() const noexcept override { return {}; }
    [[nodiscard]] int sync_fd() const noexcept override { return -1; }

    void copy_in(std::size_t offset, std::span<const std::byte> source) override {
        const CurrentContext current(*driver_, context_.get());
        const CopyStream stream(*driver_);
        stream.finish(driver_->functions().memcpy_h_to_d_async(address_ + offset, source.data(),
                                                               source.size(), stream.get()),
                      "cuMemcpyHtoDAsync",
                      std::to_string(source.size()) + " bytes could not be copied to the device");
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const override {
        const CurrentContext current(*driver_, context_.get());
        // The GPU executes the copy, so data that the NIC wrote by RDMA must be visible to the GPU
        // first.
        if (flush_needed(*driver_, device_, to_owner) == Flush::necessary) {
            flush(*driver_, to_owner);
        }
        const CopyStream stream(*driver_);
        stream.finish(
            driver_->functions().memcpy_d_to_h_async(destination.data(), address_ + offset,
                                                     destination.size(), stream.get()),
            "cuMemcpyDtoHAsync",
            std::to_string(destination.size()) + " bytes could not be copied from the device");
    }

  private:
    const Driver* driver_;
    Device device_;
    std::size_t size_;
    PrimaryContext context_;
    std::optional<Allocated> allocated_;
    DevicePointer address_ = 0;
};

} // namespace

Buffer allocate(const Driver& driver, Device device, std::size_t size) {
    return Buffer(std::make_unique<CudaMemory>(driver, device, round_up_to_pages(size)));
}

} // namespace rdmabuf::detail::cuda
