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

/// A registration path: a method to register memory with a NIC. docs/registration.md describes the
/// paths.
enum class RegistrationPath : std::uint8_t {
    /// The exporter's dma-buf is registered with ibv_reg_dmabuf_mr(3).
    dmabuf,
    /// A dma-buf with the PCIe mapping is registered with mlx5dv_reg_dmabuf_mr(3). A ConnectX NIC
    /// then accesses the GPU through the NIC's data-direct function, and not through the link
    /// between CPU and GPU.
    dmabuf_data_direct,
    /// The device address is registered with ibv_reg_mr(3). A kernel module of the vendor
    /// (nvidia_peermem) finds the pages.
    peermem,
    /// Host memory is registered with ibv_reg_mr(3).
    host,
    /// Managed memory or host memory is registered with ibv_reg_mr(3) and IBV_ACCESS_ON_DEMAND. No
    /// page is pinned, and the NIC raises a page fault for a page that is not present.
    on_demand,
};
/// Returns "dmabuf", "dmabuf_data_direct", "peermem", "host" or "on_demand".
[[nodiscard]] RDMABUF_EXPORT const char* to_string(RegistrationPath path) noexcept;

/// One attempt of register_memory() to register memory on a registration path, or the reason why
/// the path was skipped.
struct Attempt {
    RegistrationPath path{};
    /// The mapping that was requested from the exporter. The value has a meaning only for the
    /// dma-buf paths.
    MappingKind mapping = MappingKind::standard;
    /// The reason why this mapping was selected for the NIC, as a string literal. Empty for the
    /// standard mapping.
    const char* reason = "";
    /// 0 if the attempt succeeded, otherwise a positive errno value. 524 is ENOTSUPP, which exists
    /// only in the kernel.
    int error = 0;
    /// The name of the C function that was called, or of the function of this library that refused
    /// the attempt. The name is a string literal.
    const char* call = "";
    /// The name of the exporter of the memory; empty if no exporter owns the memory.
    std::string exporter = {};
    /// The device on which the attempt failed, or the devices on which it succeeded, separated by
    /// ", ". Empty if the attempt succeeded on all devices of the registration, or did not call a
    /// device.
    std::string device = {};
    /// The cause of the errno value in this attempt; empty if the cause is not known.
    std::string meaning = {};
    /// A change with which the attempt would succeed; empty if no such change is known.
    std::string remedy = {};

    [[nodiscard]] bool worked() const noexcept { return error == 0; }
};
/// Returns a text such as "dmabuf: ibv_reg_dmabuf_mr on soft0, memory of cuda: Operation not
/// supported (EOPNOTSUPP): meaning; remedy".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Attempt& attempt);

/// All attempts of a registration, in chronological order. If the registration succeeded, the last
/// attempt succeeded.
class Trail {
  public:
    using Attempts = std::vector<Attempt>;

    void add(Attempt attempt) { attempts_.push_back(std::move(attempt)); }
    /// Adds an empty attempt.
    /// @return this attempt; the reference is valid until the next attempt is added
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
/// Returns a text with one sentence for each attempt, without line breaks.
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Trail& trail);

} // namespace rdmabuf
