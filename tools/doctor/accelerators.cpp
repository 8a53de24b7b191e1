// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for AMD and Intel GPUs, and for Gaudi accelerators.
#include <algorithm>
#include <array>

#include "condition.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

bool has_driver(const Check& check, std::string_view driver) {
    return std::ranges::any_of(check.gpus(),
                               [driver](const Gpu* gpu) { return gpu->driver == driver; });
}

/// Adds a finding with the result of an exporter's probe, which initialises the GPU driver.
void check_exporter(Check& check, const char* exporter, const char* means) {
    if (const std::string reason = check.why_no_driver(); !reason.empty()) {
        check.unknown({}, reason);
        return;
    }
    const Availability availability = check.system()->exporter(exporter);
    if (availability) {
        check.pass({}, availability.reason);
    } else {
        check.fail({}, availability.reason, {.means = means, .remedy = availability.remedy});
    }
}

void check_amd(Check& check) {
    if (has_driver(check, "amdgpu")) {
        check_exporter(check, "rocm", "Memory of AMD GPUs cannot be exported as dma-bufs.");
    }
}

void check_intel(Check& check) {
    for (const Gpu* const gpu : check.gpus()) {
        if (gpu->driver == "xe") {
            check.pass({gpu->name}, "xe shares the memory of the GPU in place");
        } else if (gpu->driver == "i915") {
            check.fail({gpu->name}, "i915",
                       {.means = "i915 moves every shared buffer to system memory, so that "
                                 "transfers cross PCIe twice.",
                        .remedy = "Use the driver xe (boot with i915.force_probe=!* "
                                  "xe.force_probe=*)."});
        }
    }
}

void check_gaudi(Check& check) {
    if (has_driver(check, "habanalabs")) {
        check_exporter(check, "habana", "Memory of Gaudi cannot be exported as dma-bufs.");
    }
}

constexpr std::array accelerators_list{
    Condition{"C-48", Severity::blocks, "AMD: ROCm exports dma-bufs", "rccl, src/misc/rocmwrap.cc",
              check_amd},
    Condition{"C-49", Severity::blocks, "Intel: the driver is xe",
              "Linux, drivers/gpu/drm/i915/gem/i915_gem_dmabuf.c", check_intel},
    Condition{"C-50", Severity::blocks, "Gaudi: the driver exports dma-bufs",
              "ucx, src/uct/ib/base/ib_md.c", check_gaudi},
};

} // namespace

ConditionGroup accelerator_conditions() noexcept {
    return {.title = "AMD, Intel and Gaudi", .conditions = accelerators_list};
}

} // namespace rdmabuf::tools::doctor
