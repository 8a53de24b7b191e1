// SPDX-License-Identifier: BSD-3-Clause
#include "checked_condition.hpp"

#include <array>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>

#include "recorded_machine.hpp"

namespace rdmabuf::testing {

using namespace tools::doctor;

std::vector<Finding> check_condition(std::string_view machine, std::string_view id,
                                     std::optional<SystemQueries> system, const Options& options) {
    constexpr std::array groups{library_conditions,      kernel_conditions, nic_conditions,
                                container_conditions,    limit_conditions,  path_conditions,
                                register_conditions,     nvidia_conditions, accelerator_conditions,
                                gpu_initiated_conditions};
    const RecordedMachine recorded(std::filesystem::path(MACHINES) /
                                   (std::string(machine) + ".txt"));
    Machine files(recorded.root());
    const Devices devices(files, "");
    Check check(files, devices, options, std::move(system));
    for (const auto& group : groups) {
        for (const Condition& condition : group().conditions) {
            if (condition.id == id) {
                check.run(condition);
                return check.take_findings();
            }
        }
    }
    throw std::invalid_argument("there is no condition " + std::string(id));
}

} // namespace rdmabuf::testing
