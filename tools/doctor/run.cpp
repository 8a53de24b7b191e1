// SPDX-License-Identifier: BSD-3-Clause
#include "run.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "../options.hpp"
#include "condition.hpp"
#include "environment.hpp"
#include "kernel_files.hpp"
#include "machine_dump.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::array groups{
    library_conditions,     kernel_conditions,        nic_conditions,      container_conditions,
    limit_conditions,       path_conditions,          register_conditions, nvidia_conditions,
    accelerator_conditions, gpu_initiated_conditions,
};

/// Checks that the machine has the RDMA device of the options.
/// @throws UsageError if it does not
void check_device(const Machine& machine, const Options& options) {
    std::vector<std::string> names;
    for (const NicFiles& nic : machine.nics()) {
        names.push_back(nic.name);
    }
    // Do not throw if there is no RDMA device at all: the checks of the doctor then report why
    // there is none.
    if (!options.device.empty() && !names.empty()) {
        check_device_name(options.device, names);
    }
}

/// If libibverbs lists no RDMA device, exports memory of each driver as a dma-buf, to show which
/// drivers are ready. Returns no findings if there is a device, if the machine is recorded, or with
/// --fix-script.
Section make_exports(const Check& check, const Options& options) {
    Section section{.title = "Exports of device memory, without an RDMA device", .findings = {}};
    if (check.machine().recorded() || options.fix_script || !check.devices().all().empty()) {
        return section;
    }
    for (const MemoryKindEntry& memory : find_memory(check, options)) {
        // Skip memory that is not on a GPU and cannot be allocated: it is no failure if a machine
        // has no udmabuf, for example.
        if (memory.counts && memory.options.type != "dm" &&
            (!memory.gpu.empty() || memory.missing.empty())) {
            section.findings.push_back(prove_export(memory));
        }
    }
    return section;
}

void make_proofs(Report& report, const Check& check, const Options& options) {
    if (check.machine().recorded()) {
        report.no_proofs =
            "No proof was made: a recorded machine (--root, --replay) cannot be used.";
        return;
    }
    if (options.fix_script) {
        report.no_proofs = "No proof was made: --fix-script prints commands only.";
        return;
    }
    if (check.devices().all().empty()) {
        report.no_proofs = "No proof was made: libibverbs lists no device.";
        return;
    }
    if (!check.machine().has_sysfs()) {
        report.no_proofs = "No proof was made: /sys is not mounted (C-05).";
        return;
    }
    for (const MemoryKindEntry& memory : find_memory(check, options)) {
        for (const NicFiles* const nic : check.nics()) {
            const Context* const context = check.devices().find(nic->name);
            if (memory.options.type == "memfd" && nic->driver != "softverbs") {
                continue;
            }
            if (!memory.missing.empty() || context == nullptr) {
                const bool no_memory = !memory.missing.empty();
                report.proofs.push_back(
                    {.memory = memory.name,
                     .nic = nic->name,
                     .counts = memory.counts,
                     .on_gpu = memory.on_gpu,
                     .gpu = memory.gpu,
                     .text = no_memory ? memory.missing : "the device cannot be opened",
                     .remedy = memory.remedy,
                     .no_memory = no_memory});
            } else {
                report.proofs.push_back(prove(memory, *nic, *context, check.machine()));
            }
        }
    }
}

/// Returns all pairs of the selected GPUs and NICs. If there are no GPUs or no NICs, this part of
/// the pairs is empty.
std::vector<Pair> pairs_of(const Check& check, const Options& options) {
    std::vector<const Gpu*> gpus = check.gpus();
    std::vector<const NicFiles*> nics = check.nics();
    gpus.resize(std::max<std::size_t>(gpus.size(), 1));
    nics.resize(std::max<std::size_t>(nics.size(), 1));
    std::vector<Pair> pairs;
    for (const Gpu* const gpu : gpus) {
        for (const NicFiles* const nic : nics) {
            Pair pair;
            if (gpu != nullptr) {
                pair.gpu = gpu->name;
                pair.vendor = gpu->vendor;
                pair.is_optional = gpu->is_vga && options.gpu.empty();
                pair.names = {gpu->name, gpu->driver};
            }
            if (nic != nullptr) {
                pair.nic = nic->name;
                pair.names.push_back(nic->name);
            }
            if (gpu != nullptr && nic != nullptr) {
                const auto bridges = bridges_between(check.machine().topology(), *gpu, *nic);
                pair.names.insert(pair.names.end(), bridges.begin(), bridges.end());
            }
            pair.checked = std::ranges::any_of(check.pairs(), [&](const GpuAndNic& each) {
                return each.gpu == gpu && each.nic == nic;
            });
            pairs.push_back(std::move(pair));
        }
    }
    return pairs;
}

} // namespace

Report inspect(Machine& machine, const Options& options,
               const std::function<void(const Section&)>& on_section) {
    check_device(machine, options);
    const Devices devices(machine, options.device);
    Check check(machine, devices, options,
                machine.recorded() ? std::nullopt : std::optional<SystemQueries>(std::in_place));
    Report report;
    report.require_dmabuf = options.require_dmabuf;
    report.selected_gpu = options.gpu.empty() ? "" : check.gpus().front()->name;
    report.pairs = pairs_of(check, options);
    report.peer_memory = peer_memory_module(machine);
    const auto add = [&](Section section) {
        report.sections.push_back(std::move(section));
        if (on_section) {
            on_section(report.sections.back());
        }
    };
    for (const auto& group : groups) {
        const ConditionGroup conditions = group();
        for (const Condition& condition : conditions.conditions) {
            check.run(condition);
        }
        add({.title = conditions.title, .findings = check.take_findings()});
    }
    add(make_exports(check, options));
    make_proofs(report, check, options);
    if (!options.dump.empty()) {
        // Ask for the files of all devices, because --replay can check others than --device, --gpu
        // and --pair select here. Only the files that were asked for are in the dump.
        Check all(machine, devices, {.pair = true}, std::nullopt);
        for (const auto& group : groups) {
            for (const Condition& condition : group().conditions) {
                all.run(condition);
            }
        }
    }
    return report;
}

namespace {

int check(Machine& machine, const Options& options) {
    if (options.emit_env) {
        check_device(machine, options);
        const Devices devices(machine, options.device);
        write_stdout(format_environment(Check(machine, devices, options, std::nullopt)));
        return 0;
    }
    const TextStyle style = style_of_stdout();
    const bool as_text = !options.json && !options.fix_script;
    if (!options.dump.empty() && !std::ofstream(options.dump, std::ios::app)) {
        throw UsageError(fmt::format("--dump {} cannot be written: {}", options.dump.string(),
                                     describe_errno(errno)));
    }
    const auto print = [&](Section section) {
        if (options.failed) {
            std::erase_if(section.findings,
                          [](const Finding& each) { return each.verdict != Verdict::fail; });
        }
        write_stdout(format_section(section, style));
    };
    const Report report = inspect(machine, options, [&](const Section& section) {
        if (as_text) {
            print(section);
        }
    });
    if (as_text && options.failed) {
        print({.title = "Proofs", .findings = findings_of(report.proofs)});
        write_stdout(wrap(style, describe_result(report), "", "  "));
    } else {
        write_stdout(options.json         ? to_json(report, options.failed).dump()
                     : options.fix_script ? format_script(report)
                                          : format_result(report, style));
    }
    if (!options.dump.empty()) {
        write_dump(options.dump, machine, report);
    }
    return options.fix_script ? 0 : exit_status(report);
}

} // namespace

int run(const Options& options) {
    if (options.replay.empty()) {
        Machine machine(options.root);
        return check(machine, options);
    }
    const ReplayedMachine replayed(options.replay);
    Machine machine(replayed.root());
    return check(machine, options);
}

} // namespace rdmabuf::tools::doctor
