// SPDX-License-Identifier: BSD-3-Clause
#include "exporter_info.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string_view>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/quirks.hpp>
#include <rdmabuf/resolver.hpp>
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
#include <rdmabuf/providers/external.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_MEMFD
#include <rdmabuf/providers/memfd.hpp>
#endif

#include "../doctor/machine.hpp"
#include "../json.hpp"
#include "../version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::exporters {

namespace {

struct Row {
    const char* name = nullptr;
    const char* memory = nullptr;
    /// The kernel modules that the report lists if they are loaded; the unused elements are null.
    std::array<const char*, 3> modules{};
    /// The object that the program has to pass to the exporter; null if none is needed.
    const char* needs = nullptr;
    /// The PCI vendor ID of the devices; 0 if the exporter is not for the devices of one vendor.
    /// Also 0 for AWS, whose network cards have the same vendor ID as its accelerators.
    std::uint32_t vendor = 0;
};
constexpr std::array rows{
    Row{"cuda", "NVIDIA GPU", {"nvidia", "nvidia_peermem"}, nullptr, doctor::nvidia_vendor},
    Row{"level_zero", "Intel GPU", {"xe", "i915"}, nullptr, doctor::intel_vendor},
    Row{"rocm", "AMD GPU", {"amdgpu"}, nullptr, doctor::amd_vendor},
    Row{"habana", "Intel Gaudi", {"habanalabs"}, nullptr, doctor::habana_vendor},
    Row{"neuron", "AWS Trainium, Inferentia", {"neuron"}, nullptr},
    Row{"drm", "dumb buffers of a DRM device", {"vgem"}, nullptr},
    Row{"dma_heap", "dma-heaps of the kernel", {}, nullptr},
    Row{"udmabuf", "host memory as dma-bufs", {"udmabuf"}, nullptr},
    Row{"memfd", "host memory, for softverbs only", {}, nullptr},
    Row{"external", "dma-bufs of other libraries", {}, nullptr},
    Row{"verbs_dm", "memory on the RDMA device", {}, "a Context of an RDMA device"},
    Row{"verbs_buf", "ibv_alloc_buf() of the device", {}, "a ProtectionDomain"},
    Row{"vfio", "BARs of a VFIO device", {"vfio_pci"}, "a descriptor of a VFIO device"},
};

/// Returns the exporter with the name @p name, which must not need an object of the program (see
/// Row::needs); null if this build does not contain the exporter.
std::shared_ptr<Exporter> make(std::string_view name) {
#if RDMABUF_HAVE_PROVIDER_MEMFD
    if (name == "memfd") {
        return make_memfd_exporter();
    }
#endif
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
    if (name == "external") {
        return make_external_exporter();
    }
#endif
    const Resolver system = Resolver::system();
    for (const auto& exporter : system.exporters()) {
        if (exporter->name() == name) {
            return exporter;
        }
    }
    return nullptr;
}

/// Returns true if sysfs lists PCI functions and none of them is a GPU or accelerator of @p vendor.
bool is_absent(std::uint32_t vendor, const std::filesystem::path& root) {
    if (vendor == 0) {
        return false;
    }
    const doctor::Machine machine(root);
    return !machine.list("/sys/bus/pci/devices").empty() &&
           std::ranges::find(machine.gpus(), vendor, &doctor::Gpu::vendor) == machine.gpus().end();
}

std::vector<std::string> loaded_modules(const Row& row, const std::filesystem::path& root) {
    std::vector<std::string> modules;
    for (const char* const name : row.modules) {
        std::error_code none;
        if (name == nullptr || !std::filesystem::exists(root / "sys/module" / name, none)) {
            continue;
        }
        std::ifstream file(root / "sys/module" / name / "version");
        std::string version;
        file >> version;
        modules.push_back(version.empty() ? name : fmt::format("{} {}", name, version));
    }
    return modules;
}

std::string describe(const ExporterInfo& exporter, const TextStyle& style) {
    if (!exporter.built) {
        return paint(style, Colour::bad, "not in this build of rdmabuf");
    }
    if (!exporter.standalone) {
        return exporter.availability.reason;
    }
    const Availability& availability = exporter.availability;
    std::string text = availability ? paint(style, Colour::good, "available")
                                    : paint(style, Colour::bad, "not available");
    return availability.reason.empty() ? text : text + ": " + availability.reason;
}

} // namespace

std::vector<std::string> all_names() {
    std::vector<std::string> names;
    names.reserve(rows.size());
    for (const Row& row : rows) {
        names.emplace_back(row.name);
    }
    return names;
}

ExporterInfo query(const std::string& name, const std::filesystem::path& root) {
    const Row& row =
        *std::ranges::find(rows, name, [](const Row& each) { return std::string_view(each.name); });
    const std::vector<std::string> built = built_exporters();
    ExporterInfo info{.name = name,
                      .memory = row.memory,
                      .built = std::ranges::find(built, name) != built.end(),
                      .standalone = row.needs == nullptr,
                      .modules = loaded_modules(row, root)};
    if (!info.built) {
        info.availability = Availability::no("this build of rdmabuf does not contain the exporter");
        return info;
    }
    if (!info.standalone) {
        info.availability = Availability::no(
            fmt::format("not probed: the program makes this exporter from {}", row.needs));
        return info;
    }
    try {
        const std::shared_ptr<Exporter> exporter = make(name);
        info.allocates = dynamic_cast<const Allocator*>(exporter.get()) != nullptr;
        info.availability = exporter->availability();
    } catch (const std::exception& error) {
        info.availability = Availability::no(error.what());
    }
    if (!info.availability && is_absent(row.vendor, root)) {
        info.availability = Availability::no("there is no such device on PCI");
    }
    return info;
}

std::string to_text(const Report& report, const TextStyle& style) {
    std::string out;
    for (const ExporterInfo& exporter : report.exporters) {
        out += paint(style, Colour::heading, exporter.name) + "\n";
        out += field(style, "memory",
                     exporter.memory + (exporter.allocates ? ", allocated on request" : ""));
        out += field(style, "state", describe(exporter, style));
        if (!exporter.availability.remedy.empty()) {
            out += field(style, "remedy", exporter.availability.remedy);
        }
        if (!exporter.modules.empty()) {
            out += field(style, "kernel modules",
                         fmt::format("{}", fmt::join(exporter.modules, ", ")));
        }
        if (const ExporterQuirk* const quirk = find_exporter_quirk(exporter.name)) {
            out += field(style, "when pinned", to_string(quirk->pin));
        }
    }
    return out;
}

std::string to_json(const Report& report) {
    Json json;
    json["exporters"] = Json::array();
    for (const ExporterInfo& exporter : report.exporters) {
        const ExporterQuirk* const quirk = find_exporter_quirk(exporter.name);
        const Availability& availability = exporter.availability;
        const bool probed = exporter.built && exporter.standalone;
        json["exporters"].push_back(
            {{"name", exporter.name},
             {"memory", exporter.memory},
             {"built", exporter.built},
             {"available", probed ? Json(availability.available) : Json()},
             {"reason", or_null(availability.reason)},
             {"remedy", or_null(availability.remedy)},
             {"allocates", exporter.allocates},
             {"modules", exporter.modules},
             {"pin", quirk != nullptr ? Json(to_string(quirk->pin)) : Json()},
             {"refuses", quirk != nullptr ? or_null(quirk->refuses) : Json()},
             {"note", quirk != nullptr ? or_null(quirk->note) : Json()}});
    }
    return json.dump();
}

} // namespace rdmabuf::tools::exporters
