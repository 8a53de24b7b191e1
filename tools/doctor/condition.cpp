// SPDX-License-Identifier: BSD-3-Clause
#include "condition.hpp"

#include <algorithm>
#include <charconv>
#include <exception>
#include <iterator>

#include "../options.hpp"
#include "kernel_files.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

const char* to_string(Severity severity) noexcept {
    switch (severity) {
        case Severity::blocks:
            return "blocks";
        case Severity::no_peer_to_peer:
            return "no-peer-to-peer";
        case Severity::slows:
            return "slows";
        case Severity::gpu_initiated:
            return "gpu-initiated";
        case Severity::information:
            break;
    }
    return "information";
}

const char* to_string(Verdict verdict) noexcept {
    switch (verdict) {
        case Verdict::pass:
            return "pass";
        case Verdict::fail:
            return "fail";
        case Verdict::unknown:
            break;
    }
    return "unknown";
}

namespace {

/// Returns the GPU with the PCI address or the index @p wanted, the value of --gpu.
/// @throws UsageError if there is none
const Gpu& find_gpu(const std::vector<Gpu>& gpus, const std::string& wanted) {
    if (const auto address = PciAddress::parse(wanted)) {
        const auto found = std::ranges::find(gpus, *address, &Gpu::address);
        if (found == gpus.end()) {
            std::vector<std::string> names;
            std::ranges::transform(gpus, std::back_inserter(names), &Gpu::name);
            throw UsageError(
                fmt::format("--gpu {} is not a GPU; GPUs of this machine: {}", wanted,
                            names.empty() ? "none" : fmt::to_string(fmt::join(names, ", "))));
        }
        return *found;
    }
    std::size_t index = 0;
    const char* const end = wanted.data() + wanted.size();
    if (const auto [rest, error] = std::from_chars(wanted.data(), end, index);
        error != std::errc() || rest != end) {
        throw UsageError(fmt::format(
            "--gpu {} is neither a PCI address such as 0000:17:00.0 nor an index", wanted));
    }
    if (index >= gpus.size()) {
        throw UsageError(fmt::format("--gpu {} does not exist; this machine has {} GPU(s)", wanted,
                                     gpus.size()));
    }
    return gpus[index];
}

} // namespace

Check::Check(const Machine& machine, const Devices& devices, const Options& options,
             std::optional<SystemQueries> system)
    : machine_(&machine), devices_(&devices), system_(std::move(system)) {
    for (const NicFiles& nic : machine.nics()) {
        if (options.device.empty() || nic.name == options.device) {
            nics_.push_back(&nic);
        }
    }
    if (!options.gpu.empty()) {
        gpus_.push_back(&find_gpu(machine.gpus(), options.gpu));
    } else {
        for (const Gpu& gpu : machine.gpus()) {
            gpus_.push_back(&gpu);
        }
    }
    find_pairs(options.pair);
}

std::vector<std::string> bridges_between(const Topology& topology, const Gpu& gpu,
                                         const NicFiles& nic) {
    std::vector<std::string> bridges;
    const PciFunction* const function = topology.find_pci_function(gpu.address);
    const Nic* const found = topology.find_nic(nic.name);
    if (function == nullptr || found == nullptr || !found->pci) {
        return bridges;
    }
    const auto& gpu_side = function->ancestors;
    const auto& nic_side = found->pci->ancestors;
    for (const auto& [here, there] : {std::pair(&gpu_side, &nic_side), {&nic_side, &gpu_side}}) {
        for (const std::string& ancestor : *here) {
            // The host bridge "pci0000:3a" has no registers of its own.
            if (PciAddress::parse(ancestor) &&
                std::ranges::find(*there, ancestor) == there->end()) {
                bridges.push_back(ancestor);
            }
        }
    }
    return bridges;
}

bool Check::has_nvidia() const noexcept {
    return std::ranges::any_of(gpus_, is_nvidia);
}

void Check::find_pairs(bool all) {
    for (const Gpu* const gpu : gpus_) {
        std::optional<unsigned> nearest; // the rank of the nearest selected NICs
        for (const RankedNic& ranked : machine_->topology().nearest({.device = gpu->address})) {
            if (!all && nearest && ranked.rank > *nearest) {
                break;
            }
            for (const NicFiles* const nic : nics_) {
                if (nic->name == ranked.name && !nic->pci.empty()) {
                    pairs_.push_back({.gpu = gpu, .nic = nic, .path = ranked.path});
                    nearest = nearest.value_or(ranked.rank);
                }
            }
        }
    }
}

std::string Check::why_no_driver() const {
    return system_ ? "" : "a recorded machine has no driver to query";
}

const CudaDevices& Check::cuda() {
    if (!cuda_) {
        std::string reason = read_nvidia_modules(*machine_) == NvidiaModules::open
                                 ? why_no_driver()
                                 : "the kernel modules do not export dma-bufs (C-12)";
        cuda_ = reason.empty() ? system_->cuda() : CudaDevices{.reason = std::move(reason)};
    }
    return *cuda_;
}

void Check::run(const Condition& condition) {
    condition_ = &condition;
    try {
        condition.check(*this);
    } catch (const std::exception& error) {
        unknown({}, error.what());
    }
    condition_ = nullptr;
}

void Check::pass(Subject subject, std::string found) {
    add(Verdict::pass, std::move(subject), std::move(found), {});
}

void Check::fail(Subject subject, std::string found, Advice advice,
                 std::optional<Severity> severity) {
    add(Verdict::fail, std::move(subject), std::move(found), std::move(advice));
    findings_.back().severity = severity.value_or(condition_->severity);
}

void Check::unknown(Subject subject, std::string found, Advice advice) {
    add(Verdict::unknown, std::move(subject), std::move(found), std::move(advice));
}

void Check::add(Verdict verdict, Subject subject, std::string found, Advice advice) {
    findings_.push_back({.id = condition_->id,
                         .severity = condition_->severity,
                         .condition = condition_->statement,
                         .subject = std::move(subject),
                         .verdict = verdict,
                         .found = std::move(found),
                         .advice = std::move(advice),
                         .source = condition_->source,
                         .vendor = condition_->vendor,
                         .only_dmabufs = condition_->only_dmabufs});
}

} // namespace rdmabuf::tools::doctor
