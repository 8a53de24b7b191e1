// SPDX-License-Identifier: BSD-3-Clause
#include "environment.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "../text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

/// Returns the smallest value of NCCL_NET_GDR_LEVEL that permits GPUDirect over a path. NCCL has no
/// level for C2C and NODE: PHB includes all paths within a NUMA node.
const char* level_of(PathType type) {
    switch (type) {
        case PathType::loc:
        case PathType::pix:
            return "PIX";
        case PathType::pxb:
            return "PXB";
        case PathType::c2c:
        case PathType::phb:
        case PathType::node:
            return "PHB";
        default:
            return "SYS";
    }
}

} // namespace

std::string format_environment(const Check& check) {
    std::string text = "# Variables for a process that uses one GPU, by the distances in sysfs.\n";
    if (check.gpus().empty()) {
        text += "# This machine has no GPU on PCI.\n";
    }
    for (const Gpu* const gpu : check.gpus()) {
        std::vector<std::string> ports;
        const Path* path = nullptr;
        std::string unusable;
        for (const GpuAndNic& pair : check.pairs()) {
            if (pair.gpu != gpu) {
                continue;
            }
            const std::string port = check.machine().active_port(pair.nic->name);
            if (!can_open_node(check.machine(), pair.nic->name)) {
                unusable += fmt::format("# {} cannot be opened.\n", printable(pair.nic->name));
            } else if (port.empty()) {
                unusable += fmt::format("# {} has no active port.\n", printable(pair.nic->name));
            } else {
                ports.push_back(fmt::format("{}:{}", pair.nic->name, port));
                path = &pair.path;
            }
        }
        text += fmt::format("\n# GPU {}\n{}", gpu->name, unusable);
        if (path == nullptr || path->type == PathType::unknown) {
            text += path == nullptr ? "# No near NIC can be used.\n"
                                    : "# sysfs does not show the distance to any NIC.\n";
            continue;
        }
        const std::string list = printable(fmt::format("{}", fmt::join(ports, ",")));
        const std::string level = level_of(path->type);
        text += fmt::format(
            "# The nearest: {}, {}. The '=' of NCCL excludes names that only begin so.\n"
            "export UCX_NET_DEVICES={}\n"
            "export NCCL_IB_HCA=={}\n"
            "# NCCL uses GPUDirect up to this distance; without the variable up to PXB. Beyond "
            "PXB,\n"
            "# set it only if the proofs of rdmabuf doctor are faster than host memory.\n"
            "{}export NCCL_NET_GDR_LEVEL={}\n"
            "# NVSHMEM reads its list only with the mapping of NICs to PEs.\n"
            "export NVSHMEM_ENABLE_NIC_PE_MAPPING=1\n"
            "export NVSHMEM_HCA_LIST={}\n",
            list, to_string(path->type), list, list, level == "PIX" || level == "PXB" ? "" : "# ",
            level, list);
    }
    return text;
}

} // namespace rdmabuf::tools::doctor
