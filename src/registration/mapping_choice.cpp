// SPDX-License-Identifier: BSD-3-Clause
#include "registration/mapping_choice.hpp"

#include <optional>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/topology.hpp>

#include "device/verbs_extensions.hpp"

namespace rdmabuf::detail {
namespace {

using enum RegistrationPath;
using enum MappingKind;

constexpr const char* by_caller = "the caller chose the mapping";
constexpr const char* for_efa = "EFA reaches device memory over PCIe";
constexpr const char* for_data_direct = "the NIC has a data-direct function";
constexpr const char* for_near_data_direct =
    "the data-direct function of the NIC is nearer to the memory than the NIC";
constexpr const char* for_switch = "the NIC and the memory are below the same PCIe switch";

/// Returns true if the NIC is an EFA device: its node type is unspecified, its vendor is Amazon,
/// and its device ID is between 0xefa0 and 0xefaf. The vendor and the device ID are queried only if
/// the node type is unspecified.
bool is_efa(const Context& nic) {
    if (nic.native()->device->node_type != IBV_NODE_UNSPECIFIED) {
        return false;
    }
    try {
        const ibv_device_attr attributes = nic.attributes().native.orig_attr;
        return attributes.vendor_id == 0x1d0f && (attributes.vendor_part_id & 0xfff0U) == 0xefa0U;
    } catch (const Error&) {
        return false; // The registration on this device reports the error.
    }
}

/// Returns the path between a NIC and device memory. Returns std::nullopt if @p topology is null or
/// lacks the NIC, if the exporter did not report the PCI address of the memory, or if the path is
/// unknown.
std::optional<Path> path_of(const Allocation& memory, const Context& nic,
                            const Topology* topology) {
    if (topology == nullptr) {
        return std::nullopt;
    }
    const MemoryLocation location = locate_memory(memory);
    const Nic* const function = topology->find_nic(nic.device_name());
    if (!location.device || function == nullptr) {
        return std::nullopt;
    }
    Path path = topology->path(location, *function);
    return path.type != PathType::unknown ? std::optional(std::move(path)) : std::nullopt;
}

/// Returns true if @p topology contains the data-direct function of the NIC, a second PCI function
/// that some mlx5 NICs have.
bool knows_data_direct(const Context& nic, const Topology* topology) {
    const Nic* const function =
        topology != nullptr ? topology->find_nic(nic.device_name()) : nullptr;
    return function != nullptr && function->data_direct.has_value();
}

std::vector<MappingChoice> chosen_by_caller(const Context& nic, const MappingRequest& request) {
    const MappingKind mapping = *request.options.mapping;
    const bool direct =
        request.path == dmabuf_data_direct ||
        (mapping == pcie && request.options.paths.empty() &&
         request.options.dma_handle == nullptr && data_direct_of(nic.native()).available);
    return {{.path = direct ? dmabuf_data_direct : dmabuf,
             .mapping = mapping,
             .reason = mapping == pcie ? by_caller : ""}};
}

} // namespace

std::vector<MappingChoice> choose_mappings(const Allocation& memory, const Context& nic,
                                           const MappingRequest& request) {
    if (request.options.mapping) {
        return chosen_by_caller(nic, request);
    }
    const bool device = memory.kind == MemoryKind::device;
    const bool efa = device && is_efa(nic);
    const std::optional<Path> path =
        device ? path_of(memory, nic, request.options.topology) : std::nullopt;
    // A GPU with a chip-to-chip link to its CPU can be accessed by two routes. The standard mapping
    // leads through the CPU. The PCIe mapping leads through the PCIe switch. With the PCIe mapping,
    // transfers fail on a NIC that is not below this switch.
    const bool two_routes = path && memory.c2c && !path->data_direct;
    const bool below_switch =
        two_routes && (path->type == PathType::pix || path->type == PathType::pxb);
    std::vector<MappingChoice> choices;
    const auto add_plain = [&] {
        if (efa && (!two_routes || below_switch)) {
            choices.push_back(
                {.path = dmabuf, .mapping = pcie, .use = MappingUse::exact, .reason = for_efa});
        } else if (below_switch) {
            choices.push_back(
                {.path = dmabuf, .mapping = pcie, .use = MappingUse::exact, .reason = for_switch});
        }
        choices.push_back({.path = dmabuf});
    };
    if (request.path == dmabuf_data_direct) {
        choices.push_back({.path = dmabuf_data_direct, .mapping = pcie});
        choices.push_back({.path = dmabuf_data_direct, .use = MappingUse::unexported});
        if (device && !request.other_is_listed) {
            add_plain();
        }
        return choices;
    }
    // For device memory, data direct is also a choice of the path `dmabuf`, unless the caller
    // listed `dmabuf_data_direct` as a separate path. EFA has no data direct, and data direct
    // cannot use a DMA handle.
    const bool may_be_direct =
        device && !efa && !request.other_is_listed && request.options.dma_handle == nullptr;
    const bool by_path = path && knows_data_direct(nic, request.options.topology);
    const bool direct_first = may_be_direct && request.options.paths.empty() &&
                              (!by_path || path->data_direct) &&
                              data_direct_of(nic.native()).available;
    if (direct_first) {
        choices.push_back({.path = dmabuf_data_direct,
                           .mapping = pcie,
                           .use = MappingUse::exact,
                           .reason = by_path ? for_near_data_direct : for_data_direct});
    }
    add_plain();
    if (may_be_direct && !direct_first) {
        choices.push_back({.path = dmabuf_data_direct, .mapping = pcie, .reason = after_refusal});
    }
    return choices;
}

std::size_t MappingChoices::next(MappingOutcome outcome) const noexcept {
    const MappingKind before = choices_[current_].mapping;
    std::size_t next = current_ + 1;
    for (; next < choices_.size(); ++next) {
        const MappingChoice& choice = choices_[next];
        if (outcome == MappingOutcome::not_exported ? before == pcie && choice.mapping != before
                                                    : choice.use != MappingUse::unexported) {
            break;
        }
    }
    return next;
}

} // namespace rdmabuf::detail
