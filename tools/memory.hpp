// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/resolver.hpp>

#include "options.hpp"

namespace rdmabuf::tools {

/// The registration path and the exporter of registered memory.
struct Origin {
    /// The registration path: "dm" for memory of the RDMA device, or the name of a
    /// RegistrationPath.
    std::string path;
    /// The name of the exporter that owns the memory; empty if there is none.
    std::string exporter;
    /// Details of the exporter, such as the device and the driver "/dev/dri/card0, vgem"; may be
    /// empty.
    std::string detail;
};

/// The size of a buffer and the position of its registered part, in bytes.
struct BufferLayout {
    std::size_t size = 0;
    std::size_t region_offset = 0;
    std::size_t region_length = 0;
};

/// Memory of the type in MemoryOptions::type, except "dm". It is allocated but not registered.
class AllocatedMemory {
  public:
    using Use = std::function<void(std::span<std::byte> bytes)>;

    /// @param size  in bytes
    /// @throws UsageError if this build does not have the exporter of the type, or if the type is
    ///         "external" and this machine does not support it; Error if the allocation fails
    AllocatedMemory(const MemoryOptions& options, std::size_t size);

    /// The address of the first byte, for register_memory().
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    /// The resolver that has the exporter of the memory.
    [[nodiscard]] const Resolver& resolver() const noexcept { return resolver_; }
    /// Details of the exporter, such as its device; may be empty.
    [[nodiscard]] const std::string& detail() const noexcept { return detail_; }

    /// Calls @p use with the given bytes of the memory, as TestMemory::access() does.
    void access(CpuAccessMode mode, std::size_t offset, std::size_t length, const Use& use);

  private:
    /// Allocates buffer_ with the exporter that @p options select, and sets resolver_.
    void allocate(const MemoryOptions& options, std::size_t size);

    std::vector<std::byte> host_;
    std::optional<Buffer> buffer_;
    std::optional<AddedRange> added_;
    Resolver resolver_;
    std::uintptr_t address_ = 0;
    std::string detail_;
};

/// A buffer of the memory type MemoryOptions::type, with one registered region.
class TestMemory {
  public:
    using Use = AllocatedMemory::Use;

    /// Allocates the buffer and registers the region.
    /// @param registration  the options of register_memory(). Memory of the RDMA device uses only
    ///                      RegistrationOptions::access.
    /// @throws UsageError, Error like the constructor of AllocatedMemory; Error, too, if the
    ///         registration fails
    TestMemory(const ProtectionDomain& pd, const MemoryOptions& options, const BufferLayout& layout,
               const RegistrationOptions& registration);

    /// Returns a scatter-gather entry for @p length bytes of the region.
    /// @param offset  the offset of the first byte in the region, in bytes
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const noexcept {
        return {.addr = remote_.address + offset,
                .length = static_cast<std::uint32_t>(length),
                .lkey = lkey_};
    }
    /// Returns the address and the rkey of the region, for the peer.
    [[nodiscard]] const RemoteRegion& remote() const noexcept { return remote_; }
    [[nodiscard]] const Origin& origin() const noexcept { return origin_; }

    /// Calls @p use with @p length bytes of the buffer. If the CPU cannot map the memory, @p use
    /// gets a copy of these bytes. The copy is written back to the buffer unless @p mode is read.
    /// @param offset  the offset of the first byte in the buffer, in bytes. For memory of the RDMA
    ///                device, @p offset and @p length must be multiples of 4.
    void access(CpuAccessMode mode, std::size_t offset, std::size_t length, const Use& use);

  private:
    std::optional<AllocatedMemory> allocated_;
    std::optional<DeviceMemory> device_;
    std::optional<Registration> registration_;
    std::optional<DeviceMemoryMR> device_region_;
    RemoteRegion remote_;
    std::uint32_t lkey_ = 0;
    Origin origin_;
};

} // namespace rdmabuf::tools
