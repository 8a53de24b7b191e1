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

/// The functions of libSynapse.so.
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

/// libSynapse.so, which allocates and copies.
class Synapse : public DriverBase<Synapse, SynapseFunctions> {
  public:
    using DriverBase::DriverBase;
    [[nodiscard]] static DriverDescription<SynapseFunctions> description();

    /// @param hint  what was asked for; for some results a remedy is added
    void check(Status status, const char* function, std::string_view hint) const;
};

/// A device that this process has acquired, and no other can then.
class SynapseDevice {
  public:
    explicit SynapseDevice(const Synapse& synapse);
    ~SynapseDevice();
    SynapseDevice(const SynapseDevice&) = delete;
    SynapseDevice& operator=(const SynapseDevice&) = delete;

    [[nodiscard]] int fd() const noexcept { return static_cast<int>(info_.fd); }
    /// Where the mapping begins that all its memory is in.
    [[nodiscard]] std::uint64_t mapping() const noexcept { return info_.global_hbm_base_address; }
    /// How much of the mapping the exports so far have to reach, one to @p end included.
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

/// A process can acquire one device: all memory of this process is of the same one, which is
/// released with the last of it.
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

/// Memory of the device.
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
