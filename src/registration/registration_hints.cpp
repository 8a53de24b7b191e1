// SPDX-License-Identifier: BSD-3-Clause
#include "registration/registration_hints.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

#include <rdmabuf/error.hpp>
#include <rdmabuf/quirks.hpp>

#include "device/sysfs.hpp"

namespace rdmabuf::detail {
namespace {

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) {
        text.append(text.empty() ? "" : ", ").append(name);
    }
    return text;
}

void add_remedy(Attempt& attempt, std::string_view text) {
    attempt.remedy.append(attempt.remedy.empty() || text.empty() ? "" : "; ").append(text);
}

/// Returns a text with the first versions in which a driver imports dma-bufs, for example "dma-bufs
/// from Linux 5.12 and rdma-core 34 on (follows moves)". For a driver that imports none, returns
/// "no dma-bufs" and the last Linux version that was checked.
std::string since(const ImporterQuirk& importer) {
    if (importer.mode == ImportMode::none) {
        return "no dma-bufs up to Linux 7.3";
    }
    return "dma-bufs from Linux " + std::string(importer.kernel) + " and rdma-core " +
           std::string(importer.rdma_core) + " on (" + to_string(importer.mode) + ")";
}

/// Returns true if the text @p refusals, which says when an exporter refuses a NIC
/// (ExporterQuirk::refuses), applies to @p error. A text that begins with the name of an errno
/// value applies only to this errno value. Other texts apply to all errno values, but an empty text
/// to none. refuses_mapping() must be true for @p error.
bool is_about(std::string_view refusals, int error) {
    if (refusals.empty()) {
        return false;
    }
    const std::string_view name = error == kernel_enotsupp ? "524"
                                  : error == EINVAL        ? "EINVAL"
                                                           : "EOPNOTSUPP";
    const bool names_one = refusals.front() == 'E' || refusals.front() == '5';
    return !names_one || refusals.starts_with(name);
}

} // namespace

std::vector<std::string> peer_memory_clients(const std::filesystem::path& sys) {
    // An older version of the peer memory interface has a directory in sysfs for each kernel module
    // that uses it.
    std::vector<std::string> found =
        sysfs::entries(sys / "kernel/mm/memory_peers").value_or(std::vector<std::string>());
    std::sort(found.begin(), found.end());
    std::error_code nothing;
    if (std::filesystem::exists(sys / "module/nvidia_peermem", nothing)) {
        found.emplace_back("nvidia_peermem");
    }
    return found;
}

void explain_peer_memory(const std::vector<std::string>& clients, Attempt& attempt) {
    if (clients.empty()) {
        attempt.meaning =
            "no loaded kernel module provides the pages of device addresses: neither "
            "/sys/module/nvidia_peermem nor /sys/kernel/mm/memory_peers exists";
        attempt.remedy =
            "modprobe nvidia_peermem, which needs the peer memory interface of the NIC vendor's "
            "drivers, or use the dma-buf paths";
    } else {
        attempt.meaning = "peer memory clients are loaded (" + join(clients) +
                          "), but none of them accepted this address";
        attempt.remedy =
            "see the kernel's log; CUDA virtual memory has to be created with "
            "gpuDirectRDMACapable";
    }
}

bool refuses_mapping(int error) noexcept {
    return error == EOPNOTSUPP || error == EINVAL || error == kernel_enotsupp;
}

void explain_refusal(const std::string& driver, Attempt& attempt) {
    if (!refuses_mapping(attempt.error)) {
        return;
    }
    if (const ImporterQuirk* const importer = find_importer_quirk(driver); importer != nullptr) {
        // A driver that imports no dma-bufs fails with EOPNOTSUPP. Other errno values have other
        // causes.
        if (importer->mode != ImportMode::none || attempt.error == EOPNOTSUPP) {
            add_remedy(attempt, "the driver " + driver + " imports " + since(*importer));
            add_remedy(attempt, importer->note);
        }
    }
    const ExporterQuirk* const exporter = find_exporter_quirk(attempt.exporter);
    if (exporter != nullptr && is_about(exporter->refuses, attempt.error)) {
        add_remedy(attempt,
                   attempt.exporter + " refuses importers: " + std::string(exporter->refuses));
    }
}

void explain_length(const Context& context, std::size_t length, Attempt& attempt) {
    if (attempt.error != EINVAL && attempt.error != ENOMEM) {
        return;
    }
    try {
        if (const std::uint64_t most = context.attributes().max_mr_size(); length > most) {
            attempt.meaning = "the range has " + std::to_string(length) + " bytes and " +
                              context.device_name() + " registers at most " + std::to_string(most) +
                              " at once";
            attempt.remedy = "register the range in parts (in C++: ChunkedRegion)";
        }
    } catch (const Error&) { // NOLINT(bugprone-empty-catch): it must not replace the original error
    }
}

} // namespace rdmabuf::detail
