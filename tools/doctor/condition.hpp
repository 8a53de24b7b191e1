// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "finding.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "system_queries.hpp"

namespace rdmabuf::tools::doctor {

class Check;

/// A condition that `rdmabuf doctor` checks. Each condition is one entry in the table of its group.
struct Condition {
    const char* id = nullptr;
    Severity severity = Severity::information;
    /// The requirement, such as "an RDMA device exists".
    const char* statement = nullptr;
    const char* source = nullptr;
    /// Adds findings on the devices, files or memory that the condition concerns. Adds none if the
    /// condition does not apply to the machine.
    void (*check)(Check& check) = nullptr;
    /// If not 0, the condition concerns only GPUs with this PCI vendor ID.
    std::uint32_t vendor = 0;
    /// True if a failure prevents only the registration of dma-bufs: a peer memory module can still
    /// register the memory.
    bool only_dmabufs = false;
};

/// The conditions of one topic, such as the PCIe hierarchy.
struct ConditionGroup {
    const char* title;
    std::span<const Condition> conditions;
};

// The groups. The order of the checks is in run.cpp.
[[nodiscard]] ConditionGroup library_conditions() noexcept;
[[nodiscard]] ConditionGroup kernel_conditions() noexcept;
[[nodiscard]] ConditionGroup container_conditions() noexcept;
[[nodiscard]] ConditionGroup nic_conditions() noexcept;
[[nodiscard]] ConditionGroup limit_conditions() noexcept;
[[nodiscard]] ConditionGroup nvidia_conditions() noexcept;
[[nodiscard]] ConditionGroup accelerator_conditions() noexcept;
[[nodiscard]] ConditionGroup path_conditions() noexcept;
[[nodiscard]] ConditionGroup register_conditions() noexcept;
[[nodiscard]] ConditionGroup gpu_initiated_conditions() noexcept;

struct GpuAndNic {
    const Gpu* gpu = nullptr;
    const NicFiles* nic = nullptr;
    Path path = {};
};

/// Returns true if the device node of the RDMA device exists and can be opened.
[[nodiscard]] bool can_open_node(const Machine& machine, const std::string& nic);
/// Returns the PCI bridges on the path between the GPU and the NIC: those that are above only one
/// of them. Returns none for a NIC that is not a PCI function.
[[nodiscard]] std::vector<std::string> bridges_between(const Topology& topology, const Gpu& gpu,
                                                       const NicFiles& nic);

/// The input and the output of Condition::check.
class Check {
  public:
    using Subject = std::vector<std::string>;

    /// @param system  the functions that query the running system; nullopt if only files are
    ///                checked, as for a recorded machine (Machine::recorded())
    /// @throws UsageError if the machine has no GPU that Options::gpu selects
    Check(const Machine& machine, const Devices& devices, const Options& options,
          std::optional<SystemQueries> system = SystemQueries());

    [[nodiscard]] const Machine& machine() const noexcept { return *machine_; }
    [[nodiscard]] const Devices& devices() const noexcept { return *devices_; }
    /// Returns the RDMA devices that the options select.
    [[nodiscard]] const std::vector<const NicFiles*>& nics() const noexcept { return nics_; }
    /// Returns the GPUs that the options select.
    [[nodiscard]] const std::vector<const Gpu*>& gpus() const noexcept { return gpus_; }
    /// Returns true if one of gpus() is a GPU of NVIDIA.
    [[nodiscard]] bool has_nvidia() const noexcept;
    /// Returns the pairs of a selected GPU and a selected NIC that is a PCI function. Without
    /// --pair, each GPU is paired only with those of these NICs that are nearest to it.
    [[nodiscard]] const std::vector<GpuAndNic>& pairs() const noexcept { return pairs_; }

    /// Returns the functions that query the running system; nullptr if only files are checked, as
    /// for a recorded machine (Machine::recorded()).
    [[nodiscard]] const SystemQueries* system() const noexcept {
        return system_ ? &*system_ : nullptr;
    }
    /// Returns the reason why the driver of a GPU cannot be queried; empty if system() is not null.
    [[nodiscard]] std::string why_no_driver() const;
    /// Returns the devices of the CUDA driver; an empty list with the reason if system() is null,
    /// or if the open kernel modules of NVIDIA, which alone export dma-bufs, are not loaded. The
    /// driver is queried once, because cuInit() can take seconds.
    [[nodiscard]] const CudaDevices& cuda();

    /// Calls Condition::check. If it throws, adds a finding with Verdict::unknown.
    void run(const Condition& condition);

    // Only Condition::check may call these functions. They add a finding for the condition that is
    // being checked.
    void pass(Subject subject, std::string found);
    /// @param severity  in place of the severity of the condition
    void fail(Subject subject, std::string found, Advice advice,
              std::optional<Severity> severity = std::nullopt);
    void unknown(Subject subject, std::string found, Advice advice = {});

    [[nodiscard]] const std::vector<Finding>& findings() const noexcept { return findings_; }
    [[nodiscard]] std::vector<Finding> take_findings() noexcept { return std::move(findings_); }

  private:
    void find_pairs(bool all);
    void add(Verdict verdict, Subject subject, std::string found, Advice advice);

    const Machine* machine_;
    const Devices* devices_;
    std::vector<const NicFiles*> nics_;
    std::vector<const Gpu*> gpus_;
    std::vector<GpuAndNic> pairs_;
    std::optional<SystemQueries> system_;
    std::optional<CudaDevices> cuda_;
    const Condition* condition_ = nullptr;
    std::vector<Finding> findings_;
};

} // namespace rdmabuf::tools::doctor
