// SPDX-License-Identifier: BSD-3-Clause
//
// Checks of `rdmabuf doctor` for libibverbs and its providers.
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

#include "condition.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr const char* not_recorded = "the libraries of a recorded machine are not known";

void check_dmabuf_function(Check& check) {
    if (check.system() == nullptr) {
        check.unknown({}, not_recorded);
    } else if (check.system()->has_function("ibv_reg_dmabuf_mr", "IBVERBS_1.12")) {
        check.pass({}, "ibv_reg_dmabuf_mr, IBVERBS_1.12");
    } else {
        check.fail(
            {}, "libibverbs has no ibv_reg_dmabuf_mr",
            {.means = "No dma-buf can be registered.", .remedy = "Install rdma-core 34 or newer."});
    }
}

void check_newer_functions(Check& check) {
    struct Function {
        const char* name;
        const char* version;
        const char* use;
    };
    constexpr std::array functions{
        Function{"ibv_reg_mr_ex", "IBVERBS_1.15", "TLP processing hints (rdma-core 59)"},
        Function{"ibv_dm_export_dmabuf_fd", "IBVERBS_1.16",
                 "the export of NIC memory (rdma-core 62)"},
        Function{"ibv_alloc_buf", "IBVERBS_1.17", "buffers of the NIC's driver (rdma-core 64)"},
    };
    if (check.system() == nullptr) {
        check.unknown({}, not_recorded);
        return;
    }
    std::string missing;
    std::string uses;
    for (const Function& function : functions) {
        if (!check.system()->has_function(function.name, function.version)) {
            missing += fmt::format("{}{}", missing.empty() ? "" : ", ", function.name);
            uses += fmt::format("{}{}", uses.empty() ? "" : ", ", function.use);
        }
    }
    if (missing.empty()) {
        check.pass({}, "IBVERBS_1.15 to IBVERBS_1.17");
    } else {
        check.fail({}, "missing: " + missing, {.means = fmt::format("Needed only for {}.", uses)});
    }
}

/// Returns the paths of all loaded libraries whose path contains @p name.
std::set<std::string> loaded_libraries(const Machine& machine, std::string_view name) {
    std::set<std::string> paths;
    const FileText maps = machine.read("/proc/self/maps");
    for (const std::string_view line : lines(maps.view())) {
        const std::size_t path = line.find('/');
        if (path != std::string_view::npos && line.find(name, path) != std::string_view::npos) {
            paths.emplace(line.substr(path));
        }
    }
    return paths;
}

void check_one_library(Check& check) {
    if (check.system() == nullptr) {
        check.unknown({}, not_recorded);
        return;
    }
    const auto warnings = lines(check.devices().warnings());
    const auto not_loaded = std::ranges::find_if(warnings, [](std::string_view line) {
        return line.find("couldn't load driver") != std::string_view::npos;
    });
    if (not_loaded != warnings.end()) {
        check.fail({}, std::string(*not_loaded),
                   {.means = "The provider of a device belongs to another rdma-core than "
                             "libibverbs, so the device is not listed.",
                    .remedy = "Install libibverbs and its providers from the same rdma-core."});
        return;
    }
    const auto copies = loaded_libraries(check.machine(), "/libibverbs.so");
    // With softverbs, two copies are correct: its own libibverbs.so.1 loads the real one.
    if (copies.size() > 1 && loaded_libraries(check.machine(), "/libsoftverbs.so").empty()) {
        check.fail({}, fmt::format("{}", fmt::join(copies, ", ")),
                   {.means = "Objects that one copy creates crash in the other.",
                    .remedy = "Link one libibverbs only."});
        return;
    }
    check.pass({}, copies.empty() ? "linked statically" : *copies.begin());
}

/// Returns true if this process was started with the environment variable @p name.
bool has_variable(const Machine& machine, std::string_view name) {
    const FileText environment = machine.read("/proc/self/environ");
    std::string_view all = environment.view();
    while (!all.empty()) {
        const std::string_view entry = all.substr(0, all.find('\0'));
        if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
            return true;
        }
        all.remove_prefix(std::min(entry.size() + 1, all.size()));
    }
    return false;
}

void check_fork(Check& check) {
    if (check.system() == nullptr) {
        check.unknown({}, not_recorded);
        return;
    }
    if (!has_variable(check.machine(), "RDMAV_FORK_SAFE") &&
        !has_variable(check.machine(), "IBV_FORK_SAFE")) {
        check.pass({}, "RDMAV_FORK_SAFE and IBV_FORK_SAFE are not set");
    } else if (check.system()->fork_status() == IBV_FORK_UNNEEDED) {
        check.fail({}, "RDMAV_FORK_SAFE or IBV_FORK_SAFE is set",
                   {.means = "The kernel copies registered pages on fork(2), so the variable is "
                             "not needed. Registrations are slower with it, and split mappings.",
                    .remedy = "Unset the variable."});
    } else {
        check.pass({}, "RDMAV_FORK_SAFE or IBV_FORK_SAFE is set, and this kernel needs it");
    }
}

constexpr std::array libraries_list{
    Condition{"C-01", Severity::blocks, "libibverbs registers dma-bufs",
              "rdma-core, debian/libibverbs1.symbols", check_dmabuf_function, 0,
              /*only_dmabufs=*/true},
    Condition{"C-02", Severity::information, "libibverbs has newer functions",
              "rdma-core, debian/libibverbs1.symbols", check_newer_functions},
    Condition{"C-03", Severity::blocks, "one libibverbs with its own providers is loaded",
              "pegaflow issue 296, monarch issue 2638", check_one_library},
    Condition{"C-53", Severity::information, "fork support is off, or this kernel needs it",
              "ibv_is_fork_initialized(3), Mooncake issue 3639", check_fork},
};

} // namespace

ConditionGroup library_conditions() noexcept {
    return {.title = "Libraries", .conditions = libraries_list};
}

} // namespace rdmabuf::tools::doctor
