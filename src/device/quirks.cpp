// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>

#include <rdmabuf/quirks.hpp>

namespace rdmabuf {
namespace {

using enum ImportMode;
using enum PinBehaviour;

constexpr std::array<ImporterQuirk, 14> importers{{
    {"mlx5", "mlx5_core", "5.12", "34", follows_moves,
     "needs CONFIG_INFINIBAND_ON_DEMAND_PAGING (EOPNOTSUPP without); pages of 4 KiB in the NIC "
     "before 6.17"},
    {"mlx5 data direct", "", "6.12", "54", pinned_revocable,
     "with mlx5dv_reg_dmabuf_mr; needs the NIC's data-direct function (EINVAL without)"},
    {"efa", "efa", "5.16", "38", pinned,
     "no remote_atomic (EOPNOTSUPP); remote access only if the device supports RDMA"},
    {"irdma", "ice i40e idpf", "6.3", "45", pinned_revocable, "revocable since 7.1"},
    {"bnxt_re", "bnxt_en", "6.6", "48", pinned, "not revocable in 7.3"},
    {"mana", "mana", "6.15", "57", pinned, ""},
    {"ionic", "ionic", "6.18", "61", pinned, ""},
    {"erdma", "erdma", "", "", none, "proposed in 2026, not in 7.3"},
    {"hns", "hns3", "", "", none, ""},
    {"mlx4", "mlx4_core", "", "", none, ""},
    {"cxgb4", "cxgb4", "", "", none, ""},
    {"qedr", "qede", "", "", none, ""},
    {"hfi1", "hfi1", "", "", none, ""},
    {"rxe, siw", "rxe siw", "", "", none, "dma-bufs need a device that does DMA"},
}};

constexpr std::array<ExporterQuirk, 11> exporter_table{{
    {"cuda", in_place,
     "524 if the PCI topology forbids peer-to-peer, or the importer does not support peer memory",
     "on GB200, the standard mapping uses C2C and the PCIe mapping uses BAR1; the PCIe mapping "
     "needs data direct, or a NIC below the PCIe switch of the GPU"},
    {"rocm", system_memory, "",
     "up to Linux 6.14, pinning always moves the memory; newer kernels leave it in place if all "
     "importers can do peer-to-peer"},
    {"level_zero", system_memory, "EOPNOTSUPP from i915 if the memory cannot be moved",
     "xe shares device memory in place, and moves it if there is no peer-to-peer path; i915 always "
     "moves it"},
    {"habana", in_place, "EPERM if peer-to-peer is disabled",
     "before Linux 6.7, all dma-bufs of a mapping have the same size and begin at its first byte"},
    {"neuron", in_place, "",
     "the driver can free memory that is still registered: deregister it first; a dma-buf can be "
     "imported only once"},
    {"vfio", refused, "EOPNOTSUPP unless the importer supports revocation and peer memory",
     "ENODEV after revocation; mlx5 and irdma can import it"},
    {"nic memory", refused, "EOPNOTSUPP if the importer pins it or does not support peer memory",
     "from ibv_dm_export_dmabuf_fd; for importers that follow moves"},
    {"drm", in_place, "", "dumb buffers of drivers without memory of their own (vgem)"},
    {"udmabuf", in_place, "", "system memory"},
    {"dma_heap", in_place, "", "system memory"},
    {"memfd", in_place, "EINVAL from every kernel: a memfd is not a dma-buf", "for softverbs only"},
}};

bool has_word(std::string_view words, std::string_view word) noexcept {
    while (!words.empty()) {
        const std::size_t end = std::min(words.find(' '), words.size());
        if (words.substr(0, end) == word) {
            return true;
        }
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    return false;
}

} // namespace

const char* to_string(ImportMode mode) noexcept {
    switch (mode) {
        case none:
            return "none";
        case pinned:
            return "pinned";
        case pinned_revocable:
            return "pinned, revocable";
        case follows_moves:
            return "follows moves";
    }
    return "unknown";
}

const char* to_string(PinBehaviour behaviour) noexcept {
    switch (behaviour) {
        case in_place:
            return "in place";
        case system_memory:
            return "moves to system memory";
        case refused:
            return "refused";
    }
    return "unknown";
}

std::span<const ImporterQuirk> importer_quirks() noexcept {
    return importers;
}

std::span<const ExporterQuirk> exporter_quirks() noexcept {
    return exporter_table;
}

const ImporterQuirk* find_importer_quirk(std::string_view driver) noexcept {
    const auto* const found =
        std::find_if(importers.begin(), importers.end(), [&](const auto& each) {
            return each.driver == driver || has_word(each.sysfs_drivers, driver);
        });
    return found != importers.end() ? found : nullptr;
}

const ExporterQuirk* find_exporter_quirk(std::string_view exporter) noexcept {
    const auto* const found =
        std::find_if(exporter_table.begin(), exporter_table.end(),
                     [&](const auto& each) { return each.exporter == exporter; });
    return found != exporter_table.end() ? found : nullptr;
}

} // namespace rdmabuf
