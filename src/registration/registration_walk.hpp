// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/registration.hpp>

#include "device/verbs_extensions.hpp"
#include "registration/mapping_choice.hpp"

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
    /// Why the next choice of a NIC is tried.
    enum class Outcome : std::uint8_t {
        /// The NIC refused the dma-buf in a way that another mapping may change.
        refused,
        /// The exporter did not export the mapping.
        not_exported,
    };
    /// One protection domain, and what is registered on it so far.
    struct Nic {
        explicit Nic(const ProtectionDomain* p) noexcept : pd(p) {}

        const ProtectionDomain* pd;
        NicPath path{};
        std::vector<AnyRegion> regions = {};
        /// For the dma-buf path that is tried, and the position of the current choice.
        std::vector<MappingChoice> choices = {};
        std::size_t next = 0;
        /// In bytes: the piece that could not be registered.
        std::size_t failed_length = 0;
    };

    [[nodiscard]] std::string kind() const { return to_string(set_->allocation->kind); }
    [[nodiscard]] bool listed(RegistrationPath path) const noexcept;
    [[nodiscard]] std::span<const RegistrationPath> paths() const noexcept;
    void ask_exporters();
    [[nodiscard]] bool take(RegistrationPath path);
    [[nodiscard]] bool take_dmabuf(RegistrationPath path);
    /// Registers on the NICs of @p group, whose current choice is @p choice. NICs that fail go on
    /// to their next choice. @return false if one of them has none
    [[nodiscard]] bool try_choice(const MappingChoice& choice, const std::vector<Nic*>& group);
    /// The range with a mapping: exported at the first call. @throws Error what the exporter says
    [[nodiscard]] const ExportedRange& export_for(MappingKind mapping);
    /// Goes on to the next choice that fits. @return false if there is none
    [[nodiscard]] static bool advance(Nic& nic, Outcome outcome);
    [[nodiscard]] static bool advance_all(const std::vector<Nic*>& group, Outcome outcome);
    [[nodiscard]] bool take_address(RegistrationPath path);
    [[nodiscard]] bool may_be_host();
    [[nodiscard]] bool is_device() const noexcept;

    /// Calls @p make with the offset and the length of each piece, until one fails.
    /// @return the failure; the regions of the NIC are dropped then
    template <class Make>
    [[nodiscard]] std::optional<Error> register_pieces(Nic& nic, Make make);
    void explain_failure(const Nic& nic, const Error& error, Attempt& attempt);
    void drop_regions() noexcept;
    /// What a piece is of what was exported.
    [[nodiscard]] DmaBufRange part_of(const ExportedRange& range, std::size_t offset,
                                      std::size_t length) const noexcept;
    // Each adds one region to the NIC.
    void make_data_direct(Nic& nic, const ExportedRange& range, std::size_t offset,
                          std::size_t length);
    void make_dmabuf(Nic& nic, const ExportedRange& range, std::size_t offset, std::size_t length);
    void make_address(Nic& nic, std::size_t offset, std::size_t length);
    /// With the DMA handle. @param attributes  describe where the memory is
    template <class Explain>
    void make_with_handle(Nic& nic, MrInitAttr attributes, std::uint64_t iova, std::size_t length,
                          Explain explain);

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
    std::vector<Nic> nics_ = {};
    /// What is exported for the dma-buf path that is tried, by MappingKind.
    std::array<std::optional<ExportedRange>, 2> exports_ = {};
    std::unique_ptr<RegisteredSet> set_;
};

} // namespace rdmabuf::detail
