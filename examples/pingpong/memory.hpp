// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include <rdmabuf/context.hpp>
#include <rdmabuf/cpu_access.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/region.hpp>

#include "layout.hpp"
#include "options.hpp"

namespace pingpong {

/// How memory came to be registered: said by what registered it, not by what was asked for.
struct Origin {
    /// "host", "dmabuf" or "dm".
    std::string path;
    /// The exporter that gave the dma-buf; empty where none was involved.
    std::string exporter;
    /// What the exporter is working with, "/dev/dri/card0, vgem"; may be empty.
    std::string detail;
};

/// The memory of one end, registered as its layout says.
class Memory {
  public:
    using Use = std::function<void(std::span<std::byte> buffer)>;

    virtual ~Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] virtual const rdmabuf::Region& region() const noexcept = 0;
    /// Lets @p use read or write the whole buffer, in whatever way the CPU reaches it.
    virtual void access(rdmabuf::CpuAccessMode mode, const Use& use) = 0;

    [[nodiscard]] const Origin& origin() const noexcept { return origin_; }

  protected:
    explicit Memory(Origin origin) : origin_(std::move(origin)) {}

    /// access() to memory that the CPU has no pointer to: @p use works on a copy of all of it.
    /// @param memory  has copy_in() and copy_out()
    template <class Remote>
    static void access_copy(Remote& memory, std::span<std::byte> copy, rdmabuf::CpuAccessMode mode,
                            const Use& use) {
        memory.copy_out(0, copy);
        use(copy);
        if (mode != rdmabuf::CpuAccessMode::read) {
            memory.copy_in(0, copy);
        }
    }

  private:
    Origin origin_;
};

/// @throws UsageError when the device has not enough memory of its own, rdmabuf::Error
[[nodiscard]] std::unique_ptr<Memory> make_memory(const rdmabuf::ProtectionDomain& pd,
                                                  const Layout& layout, const Options& options);

// One each in a file of its own.
[[nodiscard]] std::unique_ptr<Memory> make_host_memory(const rdmabuf::ProtectionDomain& pd,
                                                       const Layout& layout, Verb verb);
[[nodiscard]] std::unique_ptr<Memory> make_dmabuf_memory(const rdmabuf::ProtectionDomain& pd,
                                                         const Layout& layout,
                                                         const Options& options);
[[nodiscard]] std::unique_ptr<Memory> make_external_memory(const rdmabuf::ProtectionDomain& pd,
                                                           const Layout& layout,
                                                           const Options& options);
[[nodiscard]] std::unique_ptr<Memory> make_device_memory(const rdmabuf::ProtectionDomain& pd,
                                                         const Layout& layout,
                                                         const Options& options);

} // namespace pingpong
