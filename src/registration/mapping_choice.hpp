// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/registration.hpp>

namespace rdmabuf::detail {

/// When a choice is tried after the choice before it.
enum class MappingUse : std::uint8_t {
    /// Always.
    any,
    /// Only if the exporter has the mapping: an exporter may return a standard mapping instead of
    /// the one for PCIe.
    exact,
    /// Only if the exporter could not export the mapping of the choice before.
    unexported,
};

/// One way in which a NIC can register a dma-buf.
struct MappingChoice {
    /// dmabuf or dmabuf_data_direct.
    RegistrationPath path{};
    MappingKind mapping = MappingKind::standard;
    MappingUse use = MappingUse::any;
    /// Why this NIC gets the mapping, for the trail; empty for the standard mapping. A string
    /// literal.
    const char* reason = "";

    friend bool operator==(const MappingChoice&, const MappingChoice&) = default;
};

/// Why the next choice of a NIC is tried.
enum class MappingOutcome : std::uint8_t {
    /// The NIC refused the dma-buf in a way that another mapping may change.
    refused,
    /// The exporter did not export the mapping.
    not_exported,
};

/// The choices of a NIC in the order in which they are tried, and the position of the current one.
class MappingChoices {
  public:
    MappingChoices() = default;
    explicit MappingChoices(std::vector<MappingChoice> choices) noexcept
        : choices_(std::move(choices)) {}

    [[nodiscard]] const MappingChoice& current() const noexcept { return choices_[current_]; }
    /// Whether another choice is tried after @p outcome.
    [[nodiscard]] bool has_next(MappingOutcome outcome) const noexcept {
        return next(outcome) < choices_.size();
    }
    /// Goes on to the next choice that is tried after @p outcome. @return false if there is none
    [[nodiscard]] bool advance(MappingOutcome outcome) noexcept {
        current_ = next(outcome);
        return current_ < choices_.size();
    }

  private:
    [[nodiscard]] std::size_t next(MappingOutcome outcome) const noexcept;

    std::vector<MappingChoice> choices_ = {};
    std::size_t current_ = 0;
};

/// What the caller of a registration decided.
struct MappingRequest {
    const RegistrationOptions& options;
    /// The dma-buf path that is tried.
    RegistrationPath path;
    /// Whether the caller listed the other dma-buf path too, which then has its own turn.
    bool other_is_listed;
};

/// Decides which mapping of @p memory a NIC needs: a dma-buf of device memory stands for one way to
/// the memory, and the wrong one registers and fails when data moves. The choice of the caller
/// (RegistrationOptions::mapping) is the only one then. Without it, EFA gets the mapping for PCIe
/// with ibv_reg_dmabuf_mr, an mlx5 NIC with a data-direct function the mapping for PCIe with
/// data direct, and other NICs the standard mapping.
///
/// With a topology that knows the path, data direct is the first choice only if the data-direct
/// function is nearer to the memory than the NIC; and a NIC below the PCIe switch of a GPU that has
/// a chip-to-chip link to its CPU gets the mapping for PCIe with ibv_reg_dmabuf_mr, as in NCCL
/// (src/graph/paths.cc, ncclTopoCheckGdr).
/// @return the choices in the order in which they are tried; not empty
[[nodiscard]] std::vector<MappingChoice> choose_mappings(const Allocation& memory,
                                                         const Context& nic,
                                                         const MappingRequest& request);

} // namespace rdmabuf::detail
