// SPDX-License-Identifier: BSD-3-Clause
// The functions of <softverbs/softverbs.h> for tests that run on a device of the kernel. Functions
// that only a software device can have end the test with NeedsSoftverbs.
#include <softverbs/softverbs.h>

#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>

namespace {

struct NeedsSoftverbs : std::runtime_error {
    explicit NeedsSoftverbs(const char* function)
        : std::runtime_error(std::string("needs softverbs: ") + function) {}
};

} // namespace

int softverbs_reset(const char* profile, unsigned devices) {
    if (std::string(profile) != "default" || devices != 1) {
        throw NeedsSoftverbs("softverbs_reset");
    }
    return 0;
}

// A device of the kernel has no counters of objects and errors.
size_t softverbs_live(softverbs_kind /*kind*/) {
    return 0;
}
unsigned softverbs_unacknowledged_events() {
    return 0;
}
unsigned softverbs_violations() {
    return 0;
}
unsigned softverbs_pending_faults() {
    return 0;
}
void softverbs_clear_faults() {}

// Time passes by itself. Tests that measure or move it need softverbs.
int softverbs_take_clock() {
    return 0;
}
int softverbs_release_clock() {
    return 0;
}
int softverbs_step() {
    return -1;
}
uint64_t softverbs_next_timer() {
    return UINT64_MAX;
}
uint64_t softverbs_now() {
    throw NeedsSoftverbs("softverbs_now");
}
int softverbs_advance(uint64_t /*ns*/) {
    throw NeedsSoftverbs("softverbs_advance");
}

int softverbs_break_cq(ibv_cq* /*cq*/) {
    throw NeedsSoftverbs("softverbs_break_cq");
}
int softverbs_complete(ibv_cq* /*cq*/, const ibv_wc* /*completion*/) {
    throw NeedsSoftverbs("softverbs_complete");
}
int softverbs_complete_before_request(ibv_cq* /*cq*/, const ibv_wc* /*completion*/) {
    throw NeedsSoftverbs("softverbs_complete_before_request");
}
int softverbs_cq_armed(ibv_cq* /*cq*/) {
    throw NeedsSoftverbs("softverbs_cq_armed");
}
int softverbs_fail_call(const char* /*verb*/, unsigned /*nth*/, int /*error*/) {
    throw NeedsSoftverbs("softverbs_fail_call");
}
int softverbs_fail_packet(softverbs_packet_fault /*fault*/, unsigned /*nth*/, unsigned /*delay*/) {
    throw NeedsSoftverbs("softverbs_fail_packet");
}
void softverbs_get_counters(softverbs_counters* /*counters*/) {
    throw NeedsSoftverbs("softverbs_get_counters");
}
int softverbs_get_device_attr(unsigned /*device*/, ibv_device_attr_ex* /*attributes*/) {
    throw NeedsSoftverbs("softverbs_get_device_attr");
}
int softverbs_set_device_attr(unsigned /*device*/, const ibv_device_attr_ex* /*attributes*/) {
    throw NeedsSoftverbs("softverbs_set_device_attr");
}
int softverbs_raise_event(ibv_context* /*context*/, const ibv_async_event* /*event*/) {
    throw NeedsSoftverbs("softverbs_raise_event");
}
int softverbs_revoke_mr(ibv_mr* /*mr*/) {
    throw NeedsSoftverbs("softverbs_revoke_mr");
}
int softverbs_set_faults(const char* /*text*/) {
    throw NeedsSoftverbs("softverbs_set_faults");
}
int softverbs_set_port_attr(unsigned /*device*/, uint8_t /*port*/, const ibv_port_attr* /*attr*/) {
    throw NeedsSoftverbs("softverbs_set_port_attr");
}
int softverbs_set_port_state(unsigned /*device*/, uint8_t /*port*/, ibv_port_state /*state*/) {
    throw NeedsSoftverbs("softverbs_set_port_state");
}

// Soft-RoCE has global addresses only. The tests use LIDs, so the linker replaces the calls that
// take an address (--wrap), and the address gets the GID of the device.
namespace {

void make_global(ibv_context* context, ibv_ah_attr& address) {
    ibv_gid_entry entries[16]{};
    const ssize_t count = ibv_query_gid_table(context, entries, std::size(entries), 0);
    if (address.is_global != 0 || count <= 0) {
        return;
    }
    const ibv_gid_entry& last = entries[count - 1];
    address.is_global = 1;
    address.grh.dgid = last.gid;
    address.grh.sgid_index = static_cast<std::uint8_t>(last.gid_index);
    address.grh.hop_limit = 1;
}

} // namespace

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
int __real_ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
ibv_ah* __real_ibv_create_ah(ibv_pd* pd, ibv_ah_attr* address);

int __wrap_ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    ibv_qp_attr global = *attributes;
    if ((mask & IBV_QP_AV) != 0) {
        make_global(qp->context, global.ah_attr);
    }
    return __real_ibv_modify_qp(qp, &global, mask);
}
ibv_ah* __wrap_ibv_create_ah(ibv_pd* pd, ibv_ah_attr* address) {
    ibv_ah_attr global = *address;
    make_global(pd->context, global);
    return __real_ibv_create_ah(pd, &global);
}
// NOLINTEND(bugprone-reserved-identifier)
}
