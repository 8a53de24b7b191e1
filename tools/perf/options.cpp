// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace rdmabuf::tools::perf {

const std::vector<std::pair<std::string, Verb>>& verbs() {
    static const std::vector<std::pair<std::string, Verb>> names{
        {"send", Verb::send}, {"write", Verb::write},      {"write-imm", Verb::write_imm},
        {"read", Verb::read}, {"cas", Verb::compare_swap}, {"fadd", Verb::fetch_add}};
    return names;
}

const std::vector<std::pair<std::string, QueuePairType>>& qp_types() {
    static const std::vector<std::pair<std::string, QueuePairType>> names{
        {"rc", QueuePairType::reliable_connected},
        {"srd", QueuePairType::scalable_reliable_datagram}};
    return names;
}

const std::string& to_string(Verb verb) {
    return std::ranges::find(verbs(), verb, &std::pair<std::string, Verb>::second)->first;
}

const char* to_string(Role role) noexcept {
    return role == Role::initiator ? "initiator" : "responder";
}

Access access_for(Verb verb) noexcept {
    switch (verb) {
        case Verb::send:
            return Access::local_write;
        case Verb::write:
        case Verb::write_imm:
            return Access::local_write | Access::remote_write;
        case Verb::read:
            return Access::local_write | Access::remote_read;
        case Verb::compare_swap:
        case Verb::fetch_add:
            return Access::local_write | Access::remote_atomic;
    }
    return Access::local_write;
}

namespace {

/// Checks the options for SRD queue pairs, which complete requests in any order.
/// @throws UsageError if an option requires RC queue pairs
void check_srd(const Options& options) {
    if (options.rdma_cm) {
        throw UsageError("--qp-type srd excludes --rdma-cm, which connects RC queue pairs only");
    }
    if (is_atomic(options.verb)) {
        throw UsageError("--qp-type srd has no atomics: use another --verb");
    }
    if (options.verb == Verb::write) {
        throw UsageError(
            "--verb write requires the order of RC queue pairs: with --qp-type srd use write-imm");
    }
    if (options.verb != Verb::read && options.depth > 1) {
        throw UsageError(
            "--qp-type srd requires --depth 1 or --verb read, because messages arrive out of "
            "order");
    }
}

} // namespace

void complete(Options& options, bool size_given, bool warmup_given) {
    if (!options.loopback && !options.listen && options.host.empty()) {
        throw UsageError("one of --listen, --connect HOST and --loopback is required");
    }
    if (is_atomic(options.verb)) {
        if (size_given && options.size != 8) {
            throw UsageError(fmt::format("--verb {} requires --size 8", to_string(options.verb)));
        }
        options.size = 8;
        if (options.sweep) {
            throw UsageError(fmt::format("--sweep excludes --verb {}, which has one size",
                                         to_string(options.verb)));
        }
    }
    if (options.sweep && !size_given) {
        options.size = std::uint64_t{1} << 20U;
    }
    if (!warmup_given) {
        options.warmup = std::max((options.iterations + 9) / 10, options.depth);
    }
    if (options.rdma_cm && (options.device.port || options.device.gid_index)) {
        throw UsageError(
            "--rdma-cm excludes --port and --gid-index: librdmacm chooses them by the "
            "address");
    }
    if (options.qp_type == QueuePairType::scalable_reliable_datagram) {
        check_srd(options);
    }
    tools::check(options.memory);
}

} // namespace rdmabuf::tools::perf
