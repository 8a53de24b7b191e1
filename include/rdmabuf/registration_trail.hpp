// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exported_range.hpp>

namespace rdmabuf {

/// A way to make memory known to a NIC. docs/registration.md explains each.
enum class RegistrationPath : std::uint8_t {
    /// The exporter's dma-buf, with ibv_reg_dmabuf_mr(3).
    dmabuf,
    /// The exporter's dma-buf, mapped for PCIe, with mlx5dv_reg_dmabuf_mr(3): a ConnectX reaches
    /// the GPU through its data-direct function instead of through the CPU's own link to it.
    dmabuf_data_direct,
    /// The device address itself, with ibv_reg_mr(3): a kernel module beside the driver
    /// (nvidia_peermem) finds the pages.
    peermem,
    /// Ordinary memory, with ibv_reg_mr(3).
    host,
    /// Managed memory or ordinary memory, with ibv_reg_mr(3) and IBV_ACCESS_ON_DEMAND: no page is
    /// pinned, and the NIC faults the pages that it accesses.
    on_demand,
};
/// "dmabuf", "dmabuf_data_direct", "peermem", "host", "on_demand".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationPath path) noexcept;

/// One thing that register_memory() tried, or refused to try.
struct Attempt {
    RegistrationPath path{};
    /// On the dma-buf paths: the mapping that was exported, or that the exporter refused to export.
    MappingKind mapping = MappingKind::standard;
    /// Why the NIC gets this mapping; empty for the standard mapping. A string literal.
    const char* reason = "";
    /// 0 when it worked, otherwise a positive errno value; 524 is the kernel's own ENOTSUPP.
    int error = 0;
    /// The C function, or the function of this library that refused; a string literal.
    const char* call = "";
    /// The name of the exporter whose memory it is; empty where none knows it.
    std::string exporter = {};
    /// The device on which it failed, or the devices on which it worked, separated by ", ". Empty
    /// if it worked on all devices of the registration, or no device was called.
    std::string device = {};
    /// What the errno means here; empty where nothing is known beyond it.
    std::string meaning = {};
    /// What would change that; empty where nothing is known.
    std::string remedy = {};

    [[nodiscard]] bool worked() const noexcept { return error == 0; }
};
/// "dmabuf: ibv_reg_dmabuf_mr on soft0, memory of cuda: Operation not supported (EOPNOTSUPP): why;
/// what to do".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Attempt& attempt);

/// Every attempt of a registration, in the order they were made. The last one of a registration
/// that exists is the one that worked.
class Trail {
  public:
    using Attempts = std::vector<Attempt>;

    void add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
    /// Adds an empty one. @return it, until the next is added
    Attempt& add() { return attempts_.emplace_back(); }

    [[nodiscard]] std::size_t size() const noexcept { return attempts_.size(); }
    [[nodiscard]] bool empty() const noexcept { return attempts_.empty(); }
    [[nodiscard]] const Attempt& operator[](std::size_t i) const noexcept { return attempts_[i]; }
    [[nodiscard]] const Attempt& back() const noexcept { return attempts_.back(); }
    [[nodiscard]] Attempts::const_iterator begin() const noexcept { return attempts_.begin(); }
    [[nodiscard]] Attempts::const_iterator end() const noexcept { return attempts_.end(); }

  private:
    Attempts attempts_;
};
/// One paragraph: a sentence for each attempt, without line breaks.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Trail& trail);

} // namespace rdmabuf
