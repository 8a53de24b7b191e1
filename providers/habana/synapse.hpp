// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include <rdmabuf/result.hpp>

#include "common/process_driver.hpp"
#include "habana/habana_abi.hpp"

namespace rdmabuf::detail::habana {

/// Holds pointers to the functions of libSynapse.so.
struct SynapseFunctions {
    Initialize* initialize = nullptr;
    DeviceAcquire* device_acquire = nullptr;
    DeviceRelease* device_release = nullptr;
    DeviceGetInfo* device_get_info = nullptr;
    DeviceMalloc* device_malloc = nullptr;
    DeviceFree* device_free = nullptr;
    HostMalloc* host_malloc = nullptr;
    HostFree* host_free = nullptr;
    StreamCreate* stream_create = nullptr;
    StreamDestroy* stream_destroy = nullptr;
    StreamSynchronize* stream_synchronize = nullptr;
    MemCopyAsync* mem_copy_async = nullptr;
};

/// Calls libSynapse.so, which allocates memory of a device and copies data to and from this memory.
class Synapse : public DriverBase<Synapse, SynapseFunctions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<SynapseFunctions> description();

    /// Throws an Error if @p status is not success.
    /// @param hint  text that names the failed operation. For some statuses, this function appends
    ///              a remedy
    void check(Status status, const char* function, std::string_view hint) const;
};

/// Acquires a device for this process. No other process can acquire the device while this object
/// exists.
class SynapseDevice {
  public:
    explicit SynapseDevice(const Synapse& synapse);
    ~SynapseDevice();
    SynapseDevice(const SynapseDevice&) = delete;
    SynapseDevice& operator=(const SynapseDevice&) = delete;

    [[nodiscard]] int fd() const noexcept { return static_cast<int>(info_.fd); }
    /// Returns the start address of the mapping that contains all memory of the device.
    [[nodiscard]] std::uint64_t mapping() const noexcept { return info_.global_hbm_base_address; }
    /// Returns the minimum size in bytes of the next export, which begins at the start of the
    /// mapping. The export must contain all addresses of the mapping below @p end. The export must
    /// also not be smaller than any earlier export, because kernels before 6.7 give all exports of
    /// a mapping the size of the last export.
    [[nodiscard]] std::size_t reach(std::uint64_t end);

    [[nodiscard]] std::uint64_t allocate(std::size_t size);
    void free(std::uint64_t address) noexcept;
    void copy_in(std::uint64_t to, std::span<const std::byte> source);
    void copy_out(std::uint64_t from, std::span<std::byte> destination);

  private:
    class HostMemory;
    void copy(std::uint64_t from, std::size_t size, std::uint64_t to, Direction direction);

    const Synapse* synapse_;
    DeviceId id_ = 0;
    DeviceInfo info_;
    Stream stream_ = nullptr;
    std::mutex mutex_;
    std::size_t reach_ = 0;
};

/// Shares ownership of the device that this process has acquired. A process can acquire only one
/// device. The first SharedDevice acquires the device, and the last SharedDevice releases the
/// device.
class SharedDevice {
  public:
    explicit SharedDevice(const Synapse& synapse);
    ~SharedDevice();
    SharedDevice(const SharedDevice&) = delete;
    SharedDevice& operator=(const SharedDevice&) = delete;

    SynapseDevice* operator->() const noexcept { return device_; }

  private:
    SynapseDevice* device_;
};

/// Owns memory that was allocated on the device.
class SynapseMemory {
  public:
    SynapseMemory(const Synapse& synapse, std::size_t size)
        : device_(synapse), size_(size), address_(device_->allocate(size)) {}
    ~SynapseMemory() { device_->free(address_); }
    SynapseMemory(const SynapseMemory&) = delete;
    SynapseMemory& operator=(const SynapseMemory&) = delete;

    [[nodiscard]] const SharedDevice& device() const noexcept { return device_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    void copy_in(std::size_t offset, std::span<const std::byte> source) {
        device_->copy_in(address_ + offset, source);
    }
    void copy_out(std::size_t offset, std::span<std::byte> destination) const {
        device_->copy_out(address_ + offset, destination);
    }

  private:
    SharedDevice device_;
    std::size_t size_;
    std::uint64_t address_;
};

} // namespace rdmabuf::detail::habana
