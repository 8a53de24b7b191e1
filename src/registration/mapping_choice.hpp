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

/// The mapping choices of a NIC are tried one after the other. A MappingUse is the condition under
/// which a choice is tried or used.
enum class MappingUse : std::uint8_t {
    /// The choice has no condition.
    any,
    /// The choice is used only if the exporter returns exactly this mapping. When the PCIe mapping
    /// is requested, an exporter may return the standard mapping.
    exact,
    /// The choice is tried only if the exporter could not export the mapping of the previous
    /// choice.
    unexported,
};

/// MappingChoice::reason of a choice that is tried after the NIC refused the standard mapping.
inline constexpr const char* after_refusal = "the NIC refused the standard mapping";

/// A registration path and a mapping with which a NIC can register a dma-buf.
struct MappingChoice {
    /// The registration path, either `dmabuf` or `dmabuf_data_direct`.
    RegistrationPath path{};
    MappingKind mapping = MappingKind::standard;
    MappingUse use = MappingUse::any;
    /// The reason for the mapping; see Attempt::reason. A string literal; always empty for the
    /// standard mapping.
    const char* reason = "";

    friend bool operator==(const MappingChoice&, const MappingChoice&) = default;
};

/// How a mapping choice of a NIC has failed.
enum class MappingOutcome : std::uint8_t {
    /// The NIC refused the dma-buf. The registration may succeed with another mapping.
    refused,
    /// The exporter could not export the mapping of the choice, or it exported another mapping
    /// although the choice is MappingUse::exact.
    not_exported,
};

/// The mapping choices of a NIC in the order in which they are tried, and the position of the
/// current choice.
class MappingChoices {
  public:
    MappingChoices() = default;
    explicit MappingChoices(std::vector<MappingChoice> choices) noexcept
        : choices_(std::move(choices)) {}

    [[nodiscard]] const MappingChoice& current() const noexcept { return choices_[current_]; }
    /// Returns true if the NIC has another mapping choice to try after @p outcome.
    [[nodiscard]] bool has_next(MappingOutcome outcome) const noexcept {
        return next(outcome) < choices_.size();
    }
    /// Selects the next mapping choice after the current choice has ended with @p outcome.
    /// @return false if no choice is left
    [[nodiscard]] bool advance(MappingOutcome outcome) noexcept {
        current_ = next(outcome);
        return current_ < choices_.size();
    }

  private:
    [[nodiscard]] std::size_t next(MappingOutcome outcome) const noexcept;

    std::vector<MappingChoice> choices_ = {};
    std::size_t current_ = 0;
};

/// The options of a registration on which the choice of the mapping depends.
struct MappingRequest {
    const RegistrationOptions& options;
    /// The dma-buf path that is being tried: `dmabuf` or `dmabuf_data_direct`.
    RegistrationPath path;
    /// True if the caller listed both dma-buf paths. Each of them is tried separately then.
    bool other_is_listed;
};

/// Returns the mappings of @p memory that a NIC can use. A dma-buf of device memory describes one
/// path to the memory. With the wrong mapping, the registration may succeed although data transfers
/// fail later. If the caller set RegistrationOptions::mapping, this mapping is the only choice.
/// Otherwise the first choice for device memory on the path `dmabuf` is:
///  - for an EFA device: the PCIe mapping with ibv_reg_dmabuf_mr(3)
///  - for an mlx5 NIC with a data-direct function, if the caller listed no paths and set no DMA
///    handle: the PCIe mapping with data direct
///  - for other NICs: the standard mapping
///
/// Two rules apply if the topology contains the path between the NIC and the memory. If it also
/// contains the data-direct function of the NIC, data direct is the first choice only if this
/// function is nearer to the memory than the NIC. If a GPU has a chip-to-chip link to its CPU, and
/// the path does not lead to a data-direct function, the choice for ibv_reg_dmabuf_mr(3) changes: a
/// NIC below the PCIe switch of the GPU gets the PCIe mapping, and all other NICs, including EFA
/// devices, get the standard mapping (NCCL, ncclTopoCheckGdr in src/graph/paths.cc; libfabric pull
/// requests 12799 and 12864).
/// @return the choices in the order in which they are tried; not empty
[[nodiscard]] std::vector<MappingChoice> choose_mappings(const Allocation& memory,
                                                         const Context& nic,
                                                         const MappingRequest& request);

} // namespace rdmabuf::detail
