// SPDX-License-Identifier: BSD-3-Clause
#include "trial.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include <rdmabuf/device_memory.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>

#include "../format.hpp"
#include "../json.hpp"
#include "../memory.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::trial {

namespace {

using Clock = std::chrono::steady_clock;

/// @throws UsageError for a path that is listed twice
PathOrder order_of(const std::vector<RegistrationPath>& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
        if (std::find(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i), list[i]) !=
            list.begin() + static_cast<std::ptrdiff_t>(i)) {
            throw UsageError(fmt::format("--path {} is listed twice", rdmabuf::to_string(list[i])));
        }
    }
    switch (list.size()) {
        case 0:
            return {};
        case 1:
            return {list[0]};
        case 2:
            return {list[0], list[1]};
        case 3:
            return {list[0], list[1], list[2]};
        case 4:
            return {list[0], list[1], list[2], list[3]};
        default:
            return {list[0], list[1], list[2], list[3], list[4]};
    }
}

const char* to_string(MappingKind mapping) {
    return mapping == MappingKind::pcie ? "pcie" : "standard";
}

bool is_dmabuf(RegistrationPath path) {
    return path == RegistrationPath::dmabuf || path == RegistrationPath::dmabuf_data_direct;
}

/// Registers memory of the RDMA device. This memory has only one registration path, so the trail
/// (the list of attempts) stays empty.
void register_device_memory(const ProtectionDomain& pd, const Options& options, Trial& trial) {
    const DeviceMemory memory(pd.context(), options.size, DeviceMemoryOptions{.log2_alignment = 3});
    const auto begin = Clock::now();
    const DeviceMemoryMR region(
        pd, memory,
        DeviceMemoryMROptions{
            .access = options.access, .offset = options.offset, .length = trial.length});
    trial.registered = Registered{.path = "dm",
                                  .mapping = {},
                                  .exporter = {},
                                  .pci_address = {},
                                  .iova = region.remote().address,
                                  .lkey = region.lkey(),
                                  .rkey = region.rkey(),
                                  .duration = Clock::now() - begin};
}

void register_any_memory(const ProtectionDomain& pd, const Options& options, Trial& trial) {
    const PathOrder order = order_of(options.paths);
    const AllocatedMemory memory(options.memory, options.size);
    trial.memory += memory.detail().empty() ? "" : ", " + memory.detail();
    trial.address = memory.address() + options.offset;
    const auto begin = Clock::now();
    const Registration registration =
        register_memory(pd, memory.resolver(), trial.address, trial.length,
                        {.paths = order, .access = options.access, .trail = &trial.trail});
    const auto& allocation = registration.allocation();
    trial.registered = Registered{
        .path = rdmabuf::to_string(registration.path()),
        .mapping = is_dmabuf(registration.path()) ? to_string(registration.mapping()) : "",
        .exporter = registration.exporter(),
        .pci_address = allocation ? allocation->pci_address : "",
        .iova = registration.iova(),
        .lkey = registration.lkey(),
        .rkey = registration.rkey(),
        .duration = Clock::now() - begin};
}

} // namespace

const std::vector<std::pair<std::string, RegistrationPath>>& paths() {
    static const std::vector<std::pair<std::string, RegistrationPath>> names = [] {
        std::vector<std::pair<std::string, RegistrationPath>> all;
        for (const RegistrationPath path :
             {RegistrationPath::dmabuf, RegistrationPath::dmabuf_data_direct,
              RegistrationPath::peermem, RegistrationPath::host, RegistrationPath::on_demand}) {
            all.emplace_back(rdmabuf::to_string(path), path);
        }
        return all;
    }();
    return names;
}

const std::vector<std::pair<std::string, Access>>& access_flags() {
    static const std::vector<std::pair<std::string, Access>> names = [] {
        std::vector<std::pair<std::string, Access>> all;
        for (const Access flag : {Access::local_write, Access::remote_write, Access::remote_read,
                                  Access::remote_atomic, Access::relaxed_ordering}) {
            all.emplace_back(rdmabuf::to_string(flag), flag);
        }
        return all;
    }();
    return names;
}

Trial try_registration(const Options& options) {
    tools::check(options.memory);
    if (options.offset >= options.size) {
        throw UsageError(
            fmt::format("--offset {} is not below --size {}", options.offset, options.size));
    }
    const bool device_memory = options.memory.type == "dm";
    if (device_memory && !options.paths.empty()) {
        throw UsageError("--path excludes --memory dm, which has only one path");
    }
    Trial trial{.device = options.device.device,
                .memory = options.memory.type,
                .length = options.size - options.offset,
                .access = options.access,
                .trail = {},
                .registered = std::nullopt};
    try {
        const Context context = open_device(options.device);
        trial.device = context.device_name();
        const ProtectionDomain pd(context);
        if (device_memory) {
            register_device_memory(pd, options, trial);
        } else {
            register_any_memory(pd, options, trial);
        }
    } catch (const Error& error) {
        // The trail (the list of attempts) is printed separately. If it is not empty, leave out the
        // hint of the error, which lists the same attempts.
        trial.problem = trial.trail.empty() ? error.what()
                                            : fmt::format("{}: {}", error.function(),
                                                          describe_errno(error.error()));
    }
    return trial;
}

std::string to_text(const Trial& trial, const TextStyle& style) {
    std::string out;
    out += field(style, "device", trial.device.empty() ? "none" : trial.device);
    out += field(style, "memory", trial.memory);
    out += field(style, "range",
                 fmt::format("{} at 0x{:x}", format_size(trial.length), trial.address));
    out += field(style, "access", rdmabuf::to_string(trial.access));
    out += "\n" + paint(style, Colour::heading, "Attempts") + "\n";
    if (trial.trail.empty()) {
        out += wrap(style, "none: no registration path was tried", "  ", "  ");
    }
    unsigned number = 0;
    for (const Attempt& attempt : trial.trail) {
        const std::string result = attempt.worked() ? paint(style, Colour::good, "ok")
                                                    : paint(style, Colour::bad, "failed");
        out += wrap(style, fmt::format("{}. {} {}", ++number, result, rdmabuf::to_string(attempt)),
                    "  ", "     ");
    }
    out += "\n";
    if (!trial.registered) {
        return out + wrap(style, paint(style, Colour::bad, "Not registered") + ": " + trial.problem,
                          "", "  ");
    }
    const Registered& made = *trial.registered;
    std::string how = "Registered as " + made.path;
    how += made.exporter.empty() ? "" : " from " + made.exporter;
    how += made.pci_address.empty() ? "" : " on " + made.pci_address;
    how += made.mapping.empty() ? "" : ", mapping " + made.mapping;
    out += wrap(style, paint(style, Colour::good, how), "", "  ");
    out += field(style, "iova", fmt::format("0x{:x}", made.iova));
    out += field(style, "lkey", fmt::format("0x{:08x}", made.lkey));
    out += field(style, "rkey", fmt::format("0x{:08x}", made.rkey));
    out += field(style, "time", format_usec(static_cast<double>(made.duration.count()) / 1e3));
    return out;
}

std::string to_json(const Trial& trial) {
    Json json;
    json["device"] = or_null(trial.device);
    json["memory"] = trial.memory;
    json["address"] = trial.address;
    json["length"] = trial.length;
    json["access"] = rdmabuf::to_string(trial.access);
    json["registered"] = trial.registered.has_value();
    json["problem"] = or_null(trial.problem);
    json["attempts"] = Json::array();
    for (const Attempt& attempt : trial.trail) {
        json["attempts"].push_back({{"path", rdmabuf::to_string(attempt.path)},
                                    {"mapping", to_string(attempt.mapping)},
                                    {"mapping_reason", or_null(attempt.reason)},
                                    {"errno", attempt.error},
                                    {"call", or_null(attempt.call)},
                                    {"exporter", or_null(attempt.exporter)},
                                    {"device", or_null(attempt.device)},
                                    {"meaning", or_null(attempt.meaning)},
                                    {"remedy", or_null(attempt.remedy)}});
    }
    if (const auto& made = trial.registered) {
        json["path"] = made->path;
        json["mapping"] = or_null(made->mapping);
        json["exporter"] = or_null(made->exporter);
        json["pci_address"] = or_null(made->pci_address);
        json["iova"] = made->iova;
        json["lkey"] = made->lkey;
        json["rkey"] = made->rkey;
        json["elapsed_usec"] = static_cast<double>(made->duration.count()) / 1e3;
    }
    return json.dump();
}

} // namespace rdmabuf::tools::trial
