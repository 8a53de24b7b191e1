// SPDX-License-Identifier: BSD-3-Clause
#include "standin.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.hpp"

namespace standin {
namespace {

constexpr std::array kind_names{"list", "context", "pd", "channel",       "cq",   "srq", "ah",
                                "mr",   "dm",      "qp", "event_channel", "cm_id"};

ibv_port_attr active_port(std::uint8_t link_layer) {
    ibv_port_attr port{};
    port.state = IBV_PORT_ACTIVE;
    port.max_mtu = IBV_MTU_4096;
    port.active_mtu = IBV_MTU_1024;
    port.gid_tbl_len = 16;
    port.pkey_tbl_len = 1;
    port.link_layer = link_layer;
    return port;
}

ibv_device_attr_ex ordinary_attributes() {
    ibv_device_attr_ex attributes{};
    ibv_device_attr& base = attributes.orig_attr;
    std::snprintf(base.fw_ver, sizeof(base.fw_ver), "1.2.3");
    base.max_mr_size = std::uint64_t{1} << 40U;
    base.max_qp_wr = 1024;
    base.max_sge = 8;
    base.max_cqe = 4096;
    base.max_qp_rd_atom = 16;
    base.max_qp_init_rd_atom = 16;
    base.atomic_cap = IBV_ATOMIC_HCA;
    base.max_srq_wr = 512;
    base.max_srq_sge = 4;
    attributes.max_dm_size = 4096;
    return attributes;
}

} // namespace

State& state() {
    static State the_state;
    return the_state;
}

std::unique_lock<std::recursive_mutex> lock() {
    return std::unique_lock(state().mutex);
}

Pipe::Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        std::perror("pipe2");
        std::abort();
    }
    read_end = ends[0];
    write_end = ends[1];
}

Pipe::~Pipe() {
    ::close(read_end);
    ::close(write_end);
}

int State::enter(const char* function) {
    for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
        if ((failure->function.empty() || failure->function == function) && --failure->left == 0) {
            const int error = failure->error;
            failures.erase(failure);
            return error;
        }
    }
    return 0;
}

int State::destroy(const void* native, Kind kind, const char* function) {
    const auto planned = std::find_if(
        failures.begin(), failures.end(),
        [function](const PlannedFailure& failure) { return failure.function == function; });
    if (planned != failures.end()) {
        const int error = planned->error;
        failures.erase(planned);
        return error;
    }
    const auto found = objects.find(native);
    if (found == objects.end() || found->second.kind != kind) {
        violation(function, "not there, or destroyed before");
        return EINVAL;
    }
    if (found->second.users != 0) {
        violation(function, "still used by " + std::to_string(found->second.users));
        return EBUSY;
    }
    for (const void* const parent : found->second.parents) {
        --objects.at(parent).users;
    }
    destroyed.emplace_back(kind_names.at(static_cast<std::size_t>(kind)));
    objects.erase(found);
    return 0;
}

void State::violation(const char* function, const std::string& what) {
    violations.push_back(std::string(function) + ": " + what);
}

Device roce_device(std::string name, std::uint64_t guid) {
    Device device;
    device.name = std::move(name);
    device.guid = guid;
    device.attributes = ordinary_attributes();
    device.ports.push_back({.attributes = active_port(IBV_LINK_LAYER_ETHERNET),
                            .gids = {gid_entry("fe80::2", 0, IBV_GID_TYPE_ROCE_V2),
                                     gid_entry("::ffff:192.0.2.1", 1, IBV_GID_TYPE_ROCE_V2)}});
    return device;
}

Device infiniband_device(std::string name) {
    Device device;
    device.name = std::move(name);
    device.attributes = ordinary_attributes();
    device.ports.push_back({.attributes = active_port(IBV_LINK_LAYER_INFINIBAND),
                            .gids = {gid_entry("fe80::2", 0, IBV_GID_TYPE_IB)}});
    device.ports[0].attributes.lid = 17;
    return device;
}

ibv_gid_entry gid_entry(const char* address, std::uint32_t index, ibv_gid_type type,
                        std::uint32_t port) {
    ibv_gid_entry entry{};
    if (::inet_pton(AF_INET6, address, entry.gid.raw) != 1) {
        std::fprintf(stderr, "%s is no IPv6 address\n", address);
        std::abort();
    }
    entry.gid_index = index;
    entry.port_num = port;
    entry.gid_type = type;
    entry.ndev_ifindex = 3;
    return entry;
}

void reset(std::vector<Device> devices) {
    const auto guard = lock();
    State& all = state();
    all.objects.clear();
    all.devices.clear();
    all.destroyed.clear();
    all.violations.clear();
    all.failures.clear();
    all.record = {};
    all.unacknowledged = 0;
    all.last_number = 0;
    all.posting_calls = 0;
    for (Device& spec : devices) {
        auto listed = std::make_unique<ListedDevice>();
        listed->node_type = IBV_NODE_CA;
        listed->transport_type = IBV_TRANSPORT_IB;
        std::snprintf(listed->name, sizeof(listed->name), "%s", spec.name.c_str());
        listed->spec = std::move(spec);
        all.devices.push_back(std::move(listed));
    }
}

Device& device(std::size_t index) {
    return state().devices.at(index)->spec;
}

std::size_t live(Kind kind) {
    const auto guard = lock();
    return static_cast<std::size_t>(
        std::count_if(state().objects.begin(), state().objects.end(),
                      [kind](const auto& object) { return object.second.kind == kind; }));
}

std::size_t live() {
    const auto guard = lock();
    return state().objects.size();
}

std::vector<std::string> destroyed() {
    const auto guard = lock();
    return state().destroyed;
}

std::vector<std::string> violations() {
    const auto guard = lock();
    return state().violations;
}

void forgive() {
    const auto guard = lock();
    state().violations.clear();
}

int unacknowledged_events() {
    const auto guard = lock();
    return state().unacknowledged;
}

void fail_call(unsigned n, int error) {
    const auto guard = lock();
    state().failures.push_back({.function = {}, .left = n, .error = error});
}

void fail_next(std::string_view function, int error) {
    const auto guard = lock();
    state().failures.push_back({.function = std::string(function), .left = 1, .error = error});
}

bool all_failed() {
    const auto guard = lock();
    return state().failures.empty();
}

void cancel_failures() {
    const auto guard = lock();
    state().failures.clear();
}

const Record& record() {
    return state().record;
}

} // namespace standin
