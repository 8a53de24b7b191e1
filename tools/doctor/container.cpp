// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for the device nodes, control groups and namespaces of a container.
#include <algorithm>
#include <array>
#include <cerrno>

#include <rdmabuf/error.hpp>

#include "../text.hpp"
#include "condition.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

/// Returns the name of the device node of an RDMA device: "uverbs0"; empty if sysfs lists none.
std::string node_of(const Machine& machine, const std::string& nic) {
    const std::string directory = "/sys/class/infiniband_verbs";
    for (const std::string& name : machine.list(directory)) {
        if (machine.line(fmt::format("{}/{}/ibdev", directory, name)) == nic) {
            return name;
        }
    }
    return {};
}

} // namespace

bool can_open_node(const Machine& machine, const std::string& nic) {
    const std::string node = node_of(machine, nic);
    return !node.empty() && machine.open_error("/dev/infiniband/" + node) == 0;
}

namespace {

Advice advice_for(int error, const std::string& path) {
    Advice advice{.means = "This process cannot use the device."};
    switch (error) {
        case ENOENT:
            advice.remedy = fmt::format(
                "Give the container the device: --device={}, or a resource of the RDMA device "
                "plugin.",
                path);
            break;
        case EPERM:
            advice.remedy =
                "The device filter of the control group forbids it: request the resource "
                "(rdma/...) of the device plugin. A hostPath mount is not enough.";
            break;
        case EACCES:
            advice.remedy = "Add the user to the group of the node, or correct the udev rule.";
            break;
        default:
            advice.remedy = "See the kernel log.";
            break;
    }
    return advice;
}

void check_nodes(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        const std::string name = node_of(check.machine(), nic->name);
        if (name.empty()) {
            check.fail({nic->name}, "sysfs lists no device node for it",
                       {.means = "Programs cannot use the device.",
                        .remedy = "Load the module ib_uverbs.",
                        .command = "modprobe ib_uverbs"});
            continue;
        }
        const std::string path = "/dev/infiniband/" + name;
        const int error = check.machine().open_error(path);
        if (error == 0) {
            check.pass({nic->name}, path);
        } else {
            check.fail({nic->name}, fmt::format("{}: {}", path, describe_errno(error)),
                       advice_for(error, path));
        }
    }
}

void check_listed(Check& check) {
    if (check.nics().size() < 2) {
        return;
    }
    std::size_t usable = 0;
    std::string name;
    for (const NicFiles* const nic : check.nics()) {
        if (can_open_node(check.machine(), nic->name)) {
            ++usable;
            name = nic->name;
        }
    }
    const std::string found =
        fmt::format("{} of {} listed devices can be opened", usable, check.nics().size());
    if (usable == check.nics().size()) {
        check.pass({}, found);
    } else {
        check.fail({}, found,
                   {.means = "Programs that take the first device of sysfs fail.",
                    .remedy = usable == 0 ? "Give the container a device."
                                          : fmt::format("Name a device: {}.", name)});
    }
}

/// Returns the value of "key=" in a line such as "mlx5_0 hca_handle=2 hca_object=max".
std::string limit_of(std::string_view text, const std::string& nic, std::string_view key) {
    const auto values = value_of(text, nic + " ");
    for (const std::string_view word : words(view(values))) {
        if (word.starts_with(key)) {
            return std::string(word.substr(key.size()));
        }
    }
    return {};
}

void check_control_group(Check& check) {
    const Machine& machine = check.machine();
    const FileText groups = machine.read("/proc/self/cgroup");
    const auto group = groups.text ? value_of(*groups.text, "0::") : std::nullopt;
    if (!group) {
        return;
    }
    const std::string directory = "/sys/fs/cgroup" + (*group == "/" ? std::string() : *group);
    const FileText max = machine.read(directory + "/rdma.max");
    const FileText current = machine.read(directory + "/rdma.current");
    if (!max.text || !current.text) {
        return; // The controller is not enabled, so there is no limit.
    }
    for (const NicFiles* const nic : check.nics()) {
        for (const char* const key : {"hca_handle=", "hca_object="}) {
            const std::string limit = limit_of(*max.text, nic->name, key);
            const std::string used = limit_of(*current.text, nic->name, key);
            const std::string found = fmt::format("{}{} of {}", key, used.empty() ? "0" : used,
                                                  limit.empty() ? "max" : limit);
            if (limit.empty() || limit == "max" || limit != used) {
                check.pass({nic->name}, found);
            } else {
                check.fail({nic->name}, found,
                           {.means = "No further verbs object can be created.",
                            .remedy = "Raise the limit of the control group.",
                            .command = fmt::format("echo {} > {}",
                                                   shell_word(nic->name + " " + key + "max"),
                                                   shell_word(directory + "/rdma.max"))});
            }
        }
    }
}

void check_namespace(Check& check) {
    const std::string shared = check.machine().line("/sys/module/ib_core/parameters/netns_mode");
    if (shared.empty()) {
        return;
    }
    if (shared == "Y" || !check.machine().nics().empty()) {
        check.pass({}, shared == "Y" ? "devices are shared by all network namespaces"
                                     : "exclusive, and this namespace has a device");
    } else {
        check.fail({}, "devices belong to one network namespace each, and this one has none",
                   {.means = "The devices of this machine are in another network namespace.",
                    .remedy = "On the host, move a device: rdma dev set NAME netns PID."});
    }
}

/// The device nodes of a GPU driver. A name that ends with '*' matches the names in which a digit
/// follows: "/dev/nvidia*" matches /dev/nvidia0.
struct GpuNodes {
    const char* driver;
    std::array<const char*, 3> nodes;
    const char* remedy;
};
constexpr std::array gpu_nodes{
    GpuNodes{"nvidia",
             {"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia*"},
             "Start the container with --gpus or NVIDIA_VISIBLE_DEVICES; on the host, run "
             "nvidia-modprobe -u -c=0."},
    GpuNodes{"amdgpu",
             {"/dev/kfd", "/dev/dri/renderD*", nullptr},
             "Start the container with --device=/dev/kfd --device=/dev/dri, in the group render."},
    GpuNodes{"xe",
             {"/dev/dri/renderD*", nullptr, nullptr},
             "Start the container with --device=/dev/dri, in the group render."},
    GpuNodes{"i915",
             {"/dev/dri/renderD*", nullptr, nullptr},
             "Start the container with --device=/dev/dri, in the group render."},
    GpuNodes{"habanalabs",
             {"/dev/accel/accel*", nullptr, nullptr},
             "Start the container with --device=/dev/accel."},
    GpuNodes{"neuron",
             {"/dev/neuron*", nullptr, nullptr},
             "Start the container with --device=/dev/neuron0, or use the Neuron device plugin."},
};

bool has_node(const Machine& machine, std::string_view pattern) {
    if (!pattern.ends_with('*')) {
        return machine.exists(std::string(pattern));
    }
    const std::size_t slash = pattern.rfind('/');
    const std::string_view prefix = pattern.substr(slash + 1, pattern.size() - slash - 2);
    // A digit must follow: /dev/nvidia0, and not /dev/nvidia-uvm.
    return std::ranges::any_of(machine.list(std::string(pattern.substr(0, slash))),
                               [prefix](const std::string& name) {
                                   return name.starts_with(prefix) && name.size() > prefix.size() &&
                                          name[prefix.size()] >= '0' && name[prefix.size()] <= '9';
                               });
}

void check_gpu_nodes(Check& check) {
    for (const GpuNodes& each : gpu_nodes) {
        const auto bound = std::ranges::find(check.gpus(), each.driver,
                                             [](const Gpu* gpu) { return gpu->driver; });
        if (bound == check.gpus().end()) {
            continue;
        }
        std::string missing;
        for (const char* const node : each.nodes) {
            if (node != nullptr && !has_node(check.machine(), node)) {
                missing += (missing.empty() ? "" : ", ") + std::string(node);
            }
        }
        if (missing.empty()) {
            check.pass({each.driver}, "the device nodes exist");
        } else {
            check.fail({each.driver}, "missing: " + missing,
                       {.means = "This process cannot allocate memory of the GPU.",
                        .remedy = each.remedy});
        }
    }
}

constexpr std::array container_list{
    Condition{"C-20", Severity::blocks, "the device node can be opened",
              "smg issue 1762, k8s-rdma-shared-dev-plugin", check_nodes},
    Condition{"C-21", Severity::information, "all listed devices can be opened",
              "k8s-rdma-shared-dev-plugin issue 93", check_listed},
    Condition{"C-22", Severity::blocks, "the control group permits verbs objects",
              "Linux, Documentation/admin-guide/cgroup-v2.rst, RDMA", check_control_group},
    Condition{"C-23", Severity::blocks, "the network namespace has RDMA devices", "rdma-system(8)",
              check_namespace},
    Condition{"C-25", Severity::blocks, "the device nodes of the GPU exist",
              "the documents of the container runtimes", check_gpu_nodes},
};

} // namespace

ConditionGroup container_conditions() noexcept {
    return {.title = "Device nodes and containers", .conditions = container_list};
}

} // namespace rdmabuf::tools::doctor
