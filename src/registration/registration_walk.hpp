// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/registration.hpp>

#include "device/verbs_extensions.hpp"

namespace rdmabuf::detail {

/// What is to be registered.
struct WalkRequest {
    std::span<const ProtectionDomain> pds;
    const Resolver& resolver;
    std::uintptr_t address;
    std::size_t length;
    const RegistrationOptions& options;
    /// In how many bytes at most a piece may have: a multiple of the page; 0 for one piece.
    std::size_t chunk;
    /// For errors.
    const char* function;
};

/// Tries one path after the other. A set has the pieces of the first protection domain, in order of
/// their addresses, then those of the second, and so on.
class RegistrationWalk {
  public:
    /// @throws Error EINVAL for what can be told wrong without trying.
    explicit RegistrationWalk(const WalkRequest& request);

    /// @throws Error with the trail when nothing worked.
    [[nodiscard]] std::unique_ptr<RegisteredSet> run();

  private:
    enum class Outcome : std::uint8_t {
        worked,
        failed,
        /// The NIC refused the dma-buf in a way that another mapping may change.
        refused_pair,
        not_exported,
    };

    [[nodiscard]] std::string kind() const { return to_string(set_->allocation->kind); }
    [[nodiscard]] bool listed(RegistrationPath path) const noexcept;
    [[nodiscard]] std::span<const RegistrationPath> paths() const noexcept;
    void ask_exporters();
    [[nodiscard]] bool take(RegistrationPath path);
    [[nodiscard]] bool take_dmabuf(RegistrationPath path);
    [[nodiscard]] Outcome try_dmabuf(RegistrationPath path, MappingKind mapping);
    [[nodiscard]] bool take_address(RegistrationPath path);
    [[nodiscard]] bool may_be_host();
    [[nodiscard]] bool is_device() const noexcept;

    /// Calls @p make with (protection domain, offset, length) of each piece, until one fails.
    template <class Make>
    [[nodiscard]] bool register_pieces(Attempt& attempt, Make make);
    /// What a piece is of what was exported.
    [[nodiscard]] DmaBufRange part_of(const ExportedRange& range, std::size_t offset,
                                      std::size_t length) const noexcept;
    // Each adds one region to the set.
    void make_data_direct(const ProtectionDomain& pd, const ExportedRange& range,
                          std::size_t offset, std::size_t length);
    void make_dmabuf(const ProtectionDomain& pd, const ExportedRange& range, std::size_t offset,
                     std::size_t length);
    void make_address(const ProtectionDomain& pd, std::size_t offset, std::size_t length);
    /// With the DMA handle. @param attributes  what says where the memory is
    template <class Explain>
    void make_with_handle(const ProtectionDomain& pd, MrInitAttr attributes, std::uint64_t iova,
                          std::size_t length, Explain explain);

    /// The attempt as the trail has it from now on; until the next one begins.
    [[nodiscard]] Attempt& begin(RegistrationPath path, const char* call);
    void fail_attempt(Attempt& attempt, const Error& error);
    /// For what is not tried.
    void refuse(RegistrationPath path, const char* call, int error, std::string meaning,
                std::string remedy = {});
    [[noreturn]] void fail() const;

    WalkRequest request_;
    Access access_;
    std::uint64_t iova_;
    /// The one that knows the memory, if any: what it says is in the set.
    const Exporter* exporter_ = nullptr;
    /// An exporter that could not say whether the memory is its own.
    std::string unanswered_;
    /// The first errno of a driver or of verbs.
    int answer_ = 0;
    std::unique_ptr<RegisteredSet> set_;
};

} // namespace rdmabuf::detail
