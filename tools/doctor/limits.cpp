// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for the limits and the processors of this process.
#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "condition.hpp"
#include "kernel_files.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// Returns the soft limit that /proc/self/limits lists as @p name: "unlimited" or a number; empty
/// if it cannot be read.
std::string soft_limit(const Machine& machine, std::string_view name) {
    const FileText file = machine.read("/proc/self/limits");
    const auto values = file.text ? value_of(*file.text, name) : std::nullopt;
    const auto all = words(view(values));
    return all.empty() ? "" : std::string(all.front());
}

std::optional<std::uint64_t> parse(std::string_view text, int base = 10) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

bool has_ipc_lock(const Machine& machine) {
    constexpr std::uint64_t ipc_lock = std::uint64_t{1} << 14U;
    const FileText status = machine.read("/proc/self/status");
    const auto effective = status.text ? value_of(*status.text, "CapEff:") : std::nullopt;
    return effective && (parse(*effective, 16).value_or(0) & ipc_lock) != 0;
}

void check_locked_memory(Check& check) {
    constexpr std::uint64_t small = std::uint64_t{64} << 20U;
    const std::string limit = soft_limit(check.machine(), "Max locked memory");
    if (limit.empty()) {
        check.unknown({}, "/proc/self/limits cannot be read");
    } else if (limit == "unlimited" || has_ipc_lock(check.machine())) {
        check.pass({}, limit == "unlimited" ? limit : limit + " bytes, and CAP_IPC_LOCK");
    } else if (parse(limit).value_or(0) >= small) {
        check.pass({}, limit + " bytes");
    } else {
        check.fail(
            {}, limit + " bytes",
            {.means = "The registration of more host memory fails with ENOMEM. dma-bufs are "
                      "not charged to this limit.",
             .remedy = "Set LimitMEMLOCK=infinity for the service, `ulimit -l unlimited` for "
                       "the shell, or add the capability IPC_LOCK to the container."});
    }
}

/// Parses a list of processors such as "0-3,8".
std::set<unsigned> processors(std::string_view text) {
    std::set<unsigned> all;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string_view range = text.substr(0, end);
        const std::size_t dash = range.find('-');
        const auto first = parse(range.substr(0, dash));
        const auto last = dash == std::string_view::npos ? first : parse(range.substr(dash + 1));
        constexpr std::uint64_t most = 65536; // against malformed files
        for (std::uint64_t each = first.value_or(1); each <= last.value_or(0) && each < most;
             ++each) {
            all.insert(static_cast<unsigned>(each));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

void check_governor(Check& check) {
    const std::string governor =
        check.machine().line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if (governor.empty()) {
        return; // The hypervisor or the firmware sets the frequency.
    }
    if (governor == "performance") {
        check.pass({"cpu0"}, governor);
    } else {
        check.fail({"cpu0"}, governor,
                   {.means = "The latency of polling varies.",
                    .remedy = "Use the governor performance.",
                    .command = "cpupower frequency-set -g performance"});
    }
}

void check_processors(Check& check) {
    check_governor(check);
    const Machine& machine = check.machine();
    const FileText status = machine.read("/proc/self/status");
    const auto allowed = status.text ? value_of(*status.text, "Cpus_allowed_list:") : std::nullopt;
    if (!allowed) {
        return;
    }
    const std::set<unsigned> mine = processors(*allowed);
    for (const NicFiles* const nic : check.nics()) {
        const Nic* const found = machine.topology().find_nic(nic->name);
        if (nic->software || found == nullptr || !found->pci || !found->pci->numa_node) {
            continue;
        }
        const int node = *found->pci->numa_node;
        const auto near =
            processors(machine.line(fmt::format("/sys/devices/system/node/node{}/cpulist", node)));
        const bool any =
            std::ranges::any_of(near, [&mine](unsigned each) { return mine.contains(each); });
        if (near.empty() || any) {
            check.pass({nic->name}, fmt::format("the process may run on NUMA node {}", node));
        } else {
            check.fail(
                {nic->name}, fmt::format("the process may not run on NUMA node {}", node),
                {.means = "Every request crosses the interconnect of the processors.",
                 .remedy = fmt::format("Start the program by numactl --cpunodebind={}.", node)});
        }
    }
}

/// Compares the numbers of verbs objects in the kernel with the limits of the devices.
void check_object_counts(Check& check) {
    if (check.system() == nullptr || check.nics().empty()) {
        return;
    }
    for (const resources::DeviceResources& device : check.system()->resources().devices) {
        if (std::ranges::find(check.nics(), device.name, &NicFiles::name) == check.nics().end()) {
            continue;
        }
        std::string all;
        std::string full;
        for (const auto& [type, limit] : device.limits) {
            const auto count = device.counts.find(type);
            if (limit == 0 || count == device.counts.end()) {
                continue;
            }
            const std::string text = fmt::format("{} {} of {}", type, count->second, limit);
            all += (all.empty() ? "" : ", ") + text;
            if (count->second >= limit - limit / 10) {
                full += (full.empty() ? "" : ", ") + text;
            }
        }
        if (!full.empty()) {
            check.fail({device.name}, full,
                       {.means = "Soon no further verbs object of this type can be created.",
                        .remedy = "`rdmabuf resources` lists the processes that own the objects: "
                                  "end those that leak them. Objects without a process remain "
                                  "until the driver is loaded again, or until a reboot."});
        } else if (!all.empty()) {
            check.pass({device.name}, all);
        }
    }
}

/// Searches the kernel log for a memory key that the firmware of an mlx5 device has refused.
void check_refused_keys(Check& check) {
    const auto is_mlx5 = [](const NicFiles* nic) { return nic->driver == "mlx5_core"; };
    if (std::ranges::none_of(check.nics(), is_mlx5)) {
        return;
    }
    // Condition C-33 reports an unreadable log if there is a pair of GPU and NIC.
    const KernelLog log = read_kernel_log(check.machine());
    for (const std::string_view line : lines(view(log.text))) {
        if (line.find(log_refused_key) != std::string_view::npos &&
            line.find("failed") != std::string_view::npos) {
            check.fail({"kernel log"}, std::string(trimmed(line)),
                       {.means = "The firmware of the NIC has refused a registration.",
                        .remedy = "If the text says that a limit is exceeded, end processes that "
                                  "leak regions (`rdmabuf resources`), or load the driver again."});
            return;
        }
    }
}

void check_counts(Check& check) {
    check_object_counts(check);
    check_refused_keys(check);
    const Machine& machine = check.machine();
    constexpr std::uint64_t few_files = 4096;
    constexpr std::uint64_t few_maps = 65530;
    const std::string files = soft_limit(machine, "Max open files");
    if (const auto number = parse(files); number && *number < few_files) {
        check.fail({"open files"}, files,
                   {.means = "Each exported dma-buf and each connection needs a descriptor.",
                    .remedy = "Set LimitNOFILE for the service, or `ulimit -n 1048576`."});
    } else if (!files.empty()) {
        check.pass({"open files"}, files);
    }
    const auto maps = machine.number("/proc/sys/vm/max_map_count");
    if (maps && *maps < few_maps) {
        check.fail({"vm.max_map_count"}, std::to_string(*maps),
                   {.means = "Programs with many registrations of host memory fail with ENOMEM.",
                    .remedy = "Raise vm.max_map_count.",
                    .command = "sysctl -w vm.max_map_count=262144"});
    } else if (maps) {
        check.pass({"vm.max_map_count"}, std::to_string(*maps));
    }
}

constexpr std::array limits_list{
    Condition{"C-24", Severity::information, "host memory may be locked",
              "Linux, drivers/infiniband/core/umem.c", check_locked_memory},
    Condition{"C-43", Severity::slows, "processors are fast and near the NIC",
              "holohub tune_system.py, azurehpc-health-checks", check_processors},
    Condition{"C-54", Severity::information, "the limits leave room for registrations",
              "Mooncake, troubleshooting", check_counts},
};

} // namespace

ConditionGroup limit_conditions() noexcept {
    return {.title = "Limits of this process", .conditions = limits_list};
}

} // namespace rdmabuf::tools::doctor
