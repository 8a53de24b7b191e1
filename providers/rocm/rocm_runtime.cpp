// SPDX-License-Identifier: BSD-3-Clause
#include "rocm/rocm_runtime.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <new>

#include <rdmabuf/error.hpp>

#include "rocm/rocm_generations.hpp"

namespace rdmabuf::detail::rocm {
namespace {

/// HSA calls this function for each handle of a list, for example for each agent.
/// @param all  a std::vector<Handle>, to which this function appends the handle
template <class Handle>
Status collect(Handle handle, void* all) noexcept {
    try {
        static_cast<std::vector<Handle>*>(all)->push_back(handle);
        return success;
    } catch (const std::bad_alloc&) {
        return out_of_resources;
    }
}

/// Returns a numeric attribute of an agent, or 0 if the driver does not report the attribute.
std::uint32_t number(const Driver& driver, Agent agent, AgentInfo attribute) noexcept {
    std::uint32_t value = 0;
    return driver.functions().agent_get_info(agent, attribute, &value) == success ? value : 0;
}

/// Returns true for the pool of ordinary GPU memory: a coarse-grained pool of the global segment
/// that permits allocation.
bool is_device_pool(const Driver& driver, MemoryPool pool) noexcept {
    const auto tells = [&](PoolInfo attribute, auto& value) {
        return driver.functions().memory_pool_get_info(pool, attribute, &value) == success;
    };
    int segment = -1;
    std::uint32_t flags = 0;
    bool allowed = false;
    return tells(PoolInfo::segment, segment) && segment == global_segment &&
           tells(PoolInfo::global_flags, flags) && (flags & coarse_grained) != 0 &&
           tells(PoolInfo::alloc_allowed, allowed) && allowed;
}

} // namespace

Runtime::Runtime(const Driver& driver) : driver_(&driver) {
    Generations::of_process().enter();
}

Runtime::~Runtime() {
    // is_parents() returns true in a child process after fork(2). In the child, hsa_shut_down would
    // wait forever for threads that exist only in the parent.
    if (is_parents()) {
        return;
    }
    Generations::of_process().leave(*driver_);
    report_teardown(driver_->functions().shut_down(), "hsa_shut_down");
}

bool Runtime::is_parents() noexcept {
    const pid_t process = Generations::of_process().process();
    return process != 0 && process != ::getpid();
}

Result<std::shared_ptr<const Runtime>> Runtime::acquire(const Driver& driver) {
    if (is_parents()) {
        return ErrorInfo{ENODEV, "hsa_init",
                         "a parent process used HSA before it forked this process",
                         "HSA cannot be used in such a child process: fork before HSA is used, or "
                         "exec another program"};
    }
    const Status initialised = driver.functions().init();
    if (initialised != success) {
        return ErrorInfo{ENODEV, "hsa_init",
                         "HSA cannot be initialised: " + driver.name_of(initialised),
                         "check whether rocminfo lists the GPU; HSA needs the amdgpu module, and "
                         "permission to open /dev/kfd and /dev/dri/renderD* (groups render, "
                         "video), which must also be passed to a container"};
    }
    try {
        return std::shared_ptr<const Runtime>(new Runtime(driver));
    } catch (...) {
        report_teardown(driver.functions().shut_down(), "hsa_shut_down");
        throw;
    }
}

std::optional<DeviceType> type_of(const Driver& driver, Agent agent) noexcept {
    DeviceType type{};
    if (agent.handle == 0 ||
        driver.functions().agent_get_info(agent, AgentInfo::device, &type) != success) {
        return std::nullopt;
    }
    return type;
}

std::string pci_address(const Driver& driver, Agent agent) {
    if (type_of(driver, agent) != DeviceType::gpu) {
        return {};
    }
    const std::uint32_t domain = number(driver, agent, AgentInfo::domain);
    // The lower 16 bits of the BDFID are the PCI bus, device and function. On some GPUs, the upper
    // bits identify a partition.
    const std::uint32_t place = number(driver, agent, AgentInfo::bdfid) & 0xFFFFU;
    if (place == 0) {
        return {};
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", domain, place >> 8U,
                  (place >> 3U) & 0x1FU, place & 7U);
    return text.data();
}

Result<std::vector<Agent>> list_gpus(const Driver& driver) {
    std::vector<Agent> agents;
    const Status listed = driver.functions().iterate_agents(&collect<Agent>, &agents);
    if (listed != success) {
        return ErrorInfo{errno_of(listed), "hsa_iterate_agents",
                         "the devices cannot be listed: " + driver.name_of(listed)};
    }
    std::erase_if(agents, [&](Agent agent) { return type_of(driver, agent) != DeviceType::gpu; });
    return agents;
}

std::optional<ErrorInfo> check_dmabufs(const Driver& driver) {
    bool supported = false;
    const Status asked =
        driver.functions().system_get_info(SystemInfo::dmabuf_supported, &supported);
    if (asked == success && supported) {
        return std::nullopt;
    }
    const std::string why = asked == success ? "" : " (" + driver.name_of(asked) + ")";
    return ErrorInfo{
        EOPNOTSUPP, "hsa_system_get_info(DMABUF_SUPPORTED)",
        "the kernel's driver does not export dma-bufs" + why,
        "use a kernel or an amdgpu-dkms whose KFD has interface version 1.12 or newer"};
}

MemoryPool device_pool(const Driver& driver, Agent gpu) {
    std::vector<MemoryPool> pools;
    driver.check(driver.functions().agent_iterate_memory_pools(gpu, &collect<MemoryPool>, &pools),
                 "hsa_amd_agent_iterate_memory_pools",
                 "the memory of " + pci_address(driver, gpu) + " cannot be listed");
    for (const MemoryPool pool : pools) {
        if (is_device_pool(driver, pool)) {
            return pool;
        }
    }
    throw Error(
        ENODEV, "hsa_amd_agent_iterate_memory_pools",
        pci_address(driver, gpu) +
            " has no coarse-grained pool that programs can allocate from; number of its pools: " +
            std::to_string(pools.size()));
}

} // namespace rdmabuf::detail::rocm
