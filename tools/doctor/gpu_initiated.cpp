// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for operations that the GPU itself posts to the NIC (IBGDA, GDAKI).
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

#include "condition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

void check_peer_mapping(Check& check) {
    const FileText params = check.machine().read("/proc/driver/nvidia/params");
    if (!check.has_nvidia() || check.nics().empty() || !params.text) {
        return;
    }
    const auto registry = value_of(*params.text, "RegistryDwords:");
    if (registry && registry->find("PeerMappingOverride=1") != std::string::npos) {
        check.pass({}, "PeerMappingOverride=1");
        return;
    }
    check.unknown(
        {}, "PeerMappingOverride is not set, and only mapping a doorbell of the NIC shows it",
        {.means = "cuMemHostRegister() of a doorbell may fail with error 800.",
         .remedy = "Set options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in "
                   "/etc/modprobe.d, run update-initramfs and reboot; or let the CPU "
                   "post the requests (NVSHMEM 3.4.5)."});
}

/// Opens the device with access to its firmware commands (DEVX), and closes it.
/// @return 0 or an errno value
int open_devx(ibv_device* device, const decltype(&::mlx5dv_open_device)& open) {
    mlx5dv_context_attr attributes{};
    attributes.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
    errno = 0;
    ibv_context* const context = open(device, &attributes);
    if (context == nullptr) {
        return errno != 0 ? errno : EOPNOTSUPP;
    }
    ::ibv_close_device(context);
    return 0;
}

void check_devx(Check& check) {
    // First look up the function in all global libraries, because softverbs defines it there. Then
    // look in libmlx5, which libibverbs has loaded if there is an mlx5 device.
    const auto function = [](const char* name) {
        void* found = ::dlsym(RTLD_DEFAULT, name);
        if (found == nullptr) {
            if (void* const library = ::dlopen("libmlx5.so.1", RTLD_LAZY | RTLD_NOLOAD)) {
                found = ::dlsym(library, name);
                ::dlclose(library);
            }
        }
        return found;
    };
    const auto is_mlx5 =
        reinterpret_cast<decltype(&::mlx5dv_is_supported)>(function("mlx5dv_is_supported"));
    const auto open =
        reinterpret_cast<decltype(&::mlx5dv_open_device)>(function("mlx5dv_open_device"));
    for (const NicFiles* const nic : check.nics()) {
        const Context* const context = check.devices().find(nic->name);
        if (context == nullptr || is_mlx5 == nullptr || open == nullptr ||
            !is_mlx5(context->native()->device)) {
            continue;
        }
        const int error = open_devx(context->native()->device, open);
        if (error == 0) {
            check.pass({nic->name}, "DEVX");
        } else {
            check.fail({nic->name}, describe_errno(error),
                       {.means = "The process cannot create the queue pairs that a GPU uses.",
                        .remedy = error == EPERM || error == EACCES
                                      ? "Give the process CAP_NET_RAW, or use a privileged "
                                        "container."
                                      : "The device or its driver has no DEVX: let the CPU post "
                                        "the requests, or use a NIC of mlx5_ib with DEVX."});
        }
    }
}

void check_firmware(Check& check) {
    for (const NicFiles* const nic : check.nics()) {
        const std::string version =
            check.machine().line("/sys/class/infiniband/" + nic->name + "/fw_ver");
        if (nic->driver == "ionic" && version.starts_with("1.117.1")) {
            check.fail({nic->name}, version,
                       {.means = "Operations that the GPU posts fail with this firmware.",
                        .remedy = "Install another firmware than 1.117.1."});
        } else if (nic->driver == "bnxt_en") {
            unsigned first = 0;
            const char* const end = version.data() + version.size();
            if (std::from_chars(version.data(), end, first).ec != std::errc()) {
                check.unknown({nic->name}, "sysfs does not report the version of the firmware");
            } else if (first < 235) {
                check.fail({nic->name}, version,
                           {.means = "Operations that the GPU posts fail with this firmware.",
                            .remedy = "Install firmware 235 or newer."});
            } else {
                check.pass({nic->name}, version);
            }
        }
    }
}

void check_completion_counters(Check& check) {
    if (check.gpus().empty() || check.system() == nullptr) {
        return;
    }
    for (const NicFiles* const nic : check.nics()) {
        if (nic->driver != "efa") {
            continue;
        }
        std::vector<std::string> missing;
        const std::string kernel = check.machine().kernel_release();
        // The driver in the Linux sources has no module version, so the kernel release decides.
        // Amazon's own driver has a module version, and also works with older kernels.
        const std::string driver = check.machine().line("/sys/module/efa/version");
        if (driver.empty() && first_numbers(kernel) < std::pair(7U, 3U)) {
            missing.push_back(fmt::format("kernel {}", kernel.empty() ? "?" : kernel));
        } else if (!driver.empty() && first_numbers(driver) < std::pair(3U, 3U)) {
            missing.push_back("efa " + driver);
        }
        if (!check.system()->has_function("ibv_create_comp_cntr", "IBVERBS_1.18")) {
            missing.emplace_back("no ibv_create_comp_cntr() in libibverbs");
        }
        if (missing.empty()) {
            check.pass({nic->name}, "completion counters");
        } else {
            check.fail({nic->name}, fmt::format("{}", fmt::join(missing, ", ")),
                       {.means = "The GPU cannot wait for transfers of EFA, as NCCL's GIN does.",
                        .remedy = "Use Linux 7.3 or the efa driver 3.3.0, and rdma-core 65."});
        }
    }
}

constexpr std::array gpu_initiated_list{
    Condition{"C-45", Severity::gpu_initiated, "the GPU can map the doorbells of the NIC",
              "NCCL, gdaki.c; nvshmem issues 23 and 34", check_peer_mapping},
    Condition{"C-46", Severity::gpu_initiated, "the process can use DEVX",
              "mlx5dv_open_device(3), sglang issue 12533", check_devx},
    Condition{"C-47", Severity::gpu_initiated, "the firmware is fit for the GPU's requests",
              "mori, tools/env_check.sh", check_firmware},
    Condition{"C-58", Severity::gpu_initiated, "EFA has completion counters",
              "aws-ofi-nccl issues 1250 and 1369", check_completion_counters},
};

} // namespace

ConditionGroup gpu_initiated_conditions() noexcept {
    return {.title = "Operations that the GPU posts", .conditions = gpu_initiated_list};
}

} // namespace rdmabuf::tools::doctor
