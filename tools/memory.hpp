// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/access.hpp>
#include <rdmabuf/added_range.hpp>
#include <rdmabuf/cpu_access.hpp>
#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration.hpp>
#include <rdmabuf/remote_region.hpp>

#include "options.hpp"

namespace rdmabuf::tools {

/// How memory was registered, as the registration reports it.
struct Origin {
    /// "dm", or the name of a RegistrationPath: "host", "dmabuf".
    std::string path;
    /// The exporter of the dma-buf; empty if there was none.
    std::string exporter;
    /// What the exporter works with, such as "/dev/dri/card0, vgem"; may be empty.
    std::string detail;
};

/// The size of a buffer, and the part of it that is registered; in bytes.
struct BufferLayout {
    std::size_t size = 0;
    std::size_t region_offset = 0;
    std::size_t region_length = 0;
};

/// A buffer of the type that MemoryOptions names, part of which is registered.
class TestMemory {
  public:
    using Use = std::function<void(std::span<std::byte> bytes)>;

    /// @throws UsageError if this build lacks the type of memory, Error
    TestMemory(const ProtectionDomain& pd, const MemoryOptions& options, const BufferLayout& layout,
               Access access);

    /// A scatter-gather entry. @param offset  in the region
    [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const noexcept {
        return {.addr = remote_.address + offset,
                .length = static_cast<std::uint32_t>(length),
                .lkey = lkey_};
    }
    /// The region for the peer.
    [[nodiscard]] const RemoteRegion& remote() const noexcept { return remote_; }
    [[nodiscard]] const Origin& origin() const noexcept { return origin_; }

    /// Calls @p use with the given bytes of the buffer. If the CPU has no mapping of the memory,
    /// @p use gets a copy, which is written back unless @p mode is read.
    /// @param offset  in the buffer; a multiple of 4, as @p length, for memory of the RDMA device
    void access(CpuAccessMode mode, std::size_t offset, std::size_t length, const Use& use);

  private:
    /// Allocates a buffer of an exporter. @return its resolver
    [[nodiscard]] Resolver allocate(const MemoryOptions& options, std::size_t size);

    std::vector<std::byte> host_;
    std::optional<Buffer> buffer_;
    std::optional<DeviceMemory> device_;
    std::optional<AddedRange> added_;
    std::optional<Registration> registration_;
    std::optional<DeviceMemoryMR> device_region_;
    RemoteRegion remote_;
    std::uint32_t lkey_ = 0;
    Origin origin_;
};

} // namespace rdmabuf::tools
