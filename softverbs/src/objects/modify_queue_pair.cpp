// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <utility>

#include "objects/process.hpp"
#include "objects/queue_pair.hpp"
#include "objects/srd.hpp"

namespace softverbs {

namespace {

constexpr int requester_attributes = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int responder_attributes = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

/// Returns the attributes (IBV_QP_*) that ibv_modify_qp() ignores for a queue pair type. XRC_SEND
/// has no responder, and XRC_RECV has no requester; programs may use the attribute mask of an RC
/// queue pair for both types. See modify_qp_mask() in the kernel (uverbs_cmd.c).
constexpr int ignored_attributes(ibv_qp_type type) noexcept {
    return type == IBV_QPT_XRC_SEND   ? responder_attributes
           : type == IBV_QPT_XRC_RECV ? requester_attributes
                                      : 0;
}

/// Masks of queue pair attributes (IBV_QP_*) for each type of queue pair.
struct Masks {
    int rc = 0;
    int uc = 0;
    int ud = 0;

    [[nodiscard]] constexpr int of(ibv_qp_type type) const noexcept {
        return is_reliable(type) ? rc & ~ignored_attributes(type) : type == IBV_QPT_UC ? uc : ud;
    }
};

constexpr Masks same(int mask) noexcept {
    return {mask, mask, mask};
}

struct Rule {
    ibv_qp_state from = IBV_QPS_RESET;
    ibv_qp_state to = IBV_QPS_RESET;
    Masks required;
    Masks optional;
};

constexpr int connected_place = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int datagram_place = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
constexpr Masks place_attributes = {connected_place, connected_place, datagram_place};

constexpr int peer_attributes = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int tuning = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;

constexpr int retry_attributes = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

/// The optional attributes of a UC queue pair for the transitions RTR to RTS, RTS to RTS, and SQD
/// to RTS.
constexpr int unreliable_running =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr Masks running_attributes = {unreliable_running | IBV_QP_MIN_RNR_TIMER, unreliable_running,
                                      IBV_QP_CUR_STATE | IBV_QP_QKEY};

constexpr int unreliable_drained = IBV_QP_AV | tuning | IBV_QP_PATH_MIG_STATE;
constexpr Masks drained_attributes = {unreliable_drained | retry_attributes | IBV_QP_PORT |
                                          IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                                          IBV_QP_MIN_RNR_TIMER,
                                      unreliable_drained, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};

constexpr Rule rules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, place_attributes, {}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {}, place_attributes},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {peer_attributes | responder_attributes, peer_attributes, 0},
     {tuning, tuning, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {retry_attributes | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
     running_attributes},
    {IBV_QPS_RTS, IBV_QPS_RTS, {}, running_attributes},
    {IBV_QPS_RTS, IBV_QPS_SQD, {}, same(IBV_QP_EN_SQD_ASYNC_NOTIFY)},
    {IBV_QPS_SQD, IBV_QPS_RTS, {}, running_attributes},
    {IBV_QPS_SQD, IBV_QPS_SQD, {}, drained_attributes},
    // Only UC and UD queue pairs can be in the state SQE.
    {IBV_QPS_SQE,
     IBV_QPS_RTS,
     {},
     {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

/// The attributes (IBV_QP_*) that ibv_modify_qp() requires or permits for a state transition.
/// IBV_QP_STATE is not included.
struct Transition {
    bool allowed = false;
    int required = 0;
    int optional = 0;
};

/// Returns the attributes that a state transition requires and permits, according to the InfiniBand
/// specification (10.3.1, 11.2.5.2) and ib_modify_qp_is_ok() in the kernel.
Transition transition(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to) noexcept {
    // The transition to RESET is always permitted. The transition to ERR is permitted from all
    // states except RESET.
    if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET)) {
        return {true, 0, 0};
    }
    for (const Rule& rule : rules) {
        if (rule.from == from && rule.to == to) {
            // An SRD queue pair has the attributes of a UD queue pair, and optionally
            // IBV_QP_RNR_RETRY in the transition from RTR to RTS.
            const bool starts_srd =
                type == IBV_QPT_DRIVER && from == IBV_QPS_RTR && to == IBV_QPS_RTS;
            return {true, rule.required.of(type),
                    rule.optional.of(type) | (starts_srd ? int{IBV_QP_RNR_RETRY} : 0)};
        }
    }
    return {};
}

constexpr unsigned max_timer = 31;  // a 5-bit field
constexpr unsigned max_retries = 7; // a 3-bit field
constexpr std::uint32_t max_24_bits = 0xffffff;

/// Returns whether the device supports rate limits for this type of queue pair.
bool can_be_limited(const Qp& qp) {
    const ibv_packet_pacing_caps& caps = device_of(qp.qp_base).attributes.packet_pacing_caps;
    // supported_qpts has no bit for IBV_QPT_DRIVER, which is 255.
    return qp.type() != IBV_QPT_DRIVER && (caps.supported_qpts & (1U << qp.type())) != 0;
}

/// Returns whether the device supports this rate limit. A rate of 0 means no limit.
bool is_rate(const Device& device, std::uint32_t rate) {
    const ibv_packet_pacing_caps& caps = device.attributes.packet_pacing_caps;
    return rate == 0 || (rate >= caps.qp_rate_limit_min && rate <= caps.qp_rate_limit_max);
}

/// Value of ibv_ece::vendor_id with the profile mlx5, as in libmlx5: a PCI vendor ID.
constexpr std::uint32_t ece_vendor = 0x15b3;

/// Returns whether the values of the attributes in the attribute mask of ibv_modify_qp() are valid.
bool are_valid(const Qp& qp, const ibv_qp_attr& given, int mask) {
    Device& device = device_of(qp.qp_base);
    const ibv_device_attr& limits = device.attributes.orig_attr;
    const auto has = [mask](int bit) { return (mask & bit) != 0; };
    const auto at_most = [&has](int bit, std::uint32_t value, std::uint32_t most) {
        return !has(bit) || value <= most;
    };
    const Port* const port =
        device.port(has(IBV_QP_PORT) ? given.port_num : qp.attributes.port_num);
    if (port == nullptr && has(IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_PATH_MTU)) {
        return false;
    }
    if (has(IBV_QP_ALT_PATH)) {
        const Port* const other = device.port(given.alt_port_num);
        if (other == nullptr || given.alt_pkey_index >= other->pkeys.size() ||
            given.alt_timeout > max_timer || check_address(device, given.alt_ah_attr) != 0) {
            return false;
        }
    }
    return (!has(IBV_QP_PKEY_INDEX) || given.pkey_index < port->pkeys.size()) &&
           (!has(IBV_QP_AV) || check_address(device, given.ah_attr) == 0) &&
           (!has(IBV_QP_PATH_MIG_STATE) ||
            (given.path_mig_state >= IBV_MIG_MIGRATED && given.path_mig_state <= IBV_MIG_ARMED)) &&
           (!has(IBV_QP_PATH_MTU) ||
            (given.path_mtu >= IBV_MTU_256 && given.path_mtu <= port->attributes.active_mtu)) &&
           at_most(IBV_QP_TIMEOUT, given.timeout, max_timer) &&
           at_most(IBV_QP_MIN_RNR_TIMER, given.min_rnr_timer, max_timer) &&
           at_most(IBV_QP_RETRY_CNT, given.retry_cnt, max_retries) &&
           at_most(IBV_QP_RNR_RETRY, given.rnr_retry, max_retries) &&
           at_most(IBV_QP_DEST_QPN, given.dest_qp_num, max_24_bits) &&
           (!has(IBV_QP_RATE_LIMIT) || is_rate(device, given.rate_limit)) &&
           at_most(IBV_QP_MAX_QP_RD_ATOMIC, given.max_rd_atomic,
                   static_cast<std::uint32_t>(limits.max_qp_init_rd_atom)) &&
           at_most(IBV_QP_MAX_DEST_RD_ATOMIC, given.max_dest_rd_atomic,
                   static_cast<std::uint32_t>(limits.max_qp_rd_atom));
}

void store(ibv_qp_attr& to, const ibv_qp_attr& from, int mask) {
    const auto copy = [mask](int bit, auto& target, const auto& value) {
        if ((mask & bit) != 0) {
            target = value;
        }
    };
    copy(IBV_QP_EN_SQD_ASYNC_NOTIFY, to.en_sqd_async_notify, from.en_sqd_async_notify);
    copy(IBV_QP_ACCESS_FLAGS, to.qp_access_flags, from.qp_access_flags);
    copy(IBV_QP_PKEY_INDEX, to.pkey_index, from.pkey_index);
    copy(IBV_QP_PORT, to.port_num, from.port_num);
    copy(IBV_QP_QKEY, to.qkey, from.qkey);
    copy(IBV_QP_AV, to.ah_attr, from.ah_attr);
    copy(IBV_QP_PATH_MTU, to.path_mtu, from.path_mtu);
    copy(IBV_QP_TIMEOUT, to.timeout, from.timeout);
    copy(IBV_QP_RETRY_CNT, to.retry_cnt, from.retry_cnt);
    copy(IBV_QP_RNR_RETRY, to.rnr_retry, from.rnr_retry);
    // As mlx5 and rxe do in the kernel, ignore the upper 8 bits of a PSN.
    copy(IBV_QP_RQ_PSN, to.rq_psn, from.rq_psn & max_24_bits);
    copy(IBV_QP_MAX_QP_RD_ATOMIC, to.max_rd_atomic, from.max_rd_atomic);
    copy(IBV_QP_ALT_PATH, to.alt_ah_attr, from.alt_ah_attr);
    copy(IBV_QP_ALT_PATH, to.alt_pkey_index, from.alt_pkey_index);
    copy(IBV_QP_ALT_PATH, to.alt_port_num, from.alt_port_num);
    copy(IBV_QP_ALT_PATH, to.alt_timeout, from.alt_timeout);
    copy(IBV_QP_MIN_RNR_TIMER, to.min_rnr_timer, from.min_rnr_timer);
    copy(IBV_QP_SQ_PSN, to.sq_psn, from.sq_psn & max_24_bits);
    copy(IBV_QP_MAX_DEST_RD_ATOMIC, to.max_dest_rd_atomic, from.max_dest_rd_atomic);
    copy(IBV_QP_PATH_MIG_STATE, to.path_mig_state, from.path_mig_state);
    copy(IBV_QP_DEST_QPN, to.dest_qp_num, from.dest_qp_num);
    copy(IBV_QP_RATE_LIMIT, to.rate_limit, from.rate_limit);
}

/// Resets a queue pair to its state after creation. Removes its work requests without completions
/// for them, and removes its completions that were not polled.
void reset(Qp& qp) {
    qp.current_state = IBV_QPS_RESET;
    qp.sends.clear();
    qp.receives.clear();
    qp.requester.next = qp.sends.end();
    if (qp.srd != nullptr) {
        qp.srd->reset();
    }
    forget_work(qp);
    const ibv_qp_cap cap = qp.attributes.cap;
    qp.attributes = {};
    qp.attributes.cap = cap;
    qp.last_receive_flushed = false;
}

/// With the device profile efa, returns EOPNOTSUPP for attributes in the mask that the efa kernel
/// driver does not support, for a port other than 1, and for a P_Key index other than 0. Otherwise
/// returns 0.
int check_efa(const Qp& qp, const ibv_qp_attr& attributes, int mask) {
    constexpr int supported = IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY |
                              IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_SQ_PSN |
                              IBV_QP_RNR_RETRY;
    const bool is_efa = device_of(qp.qp_base).rules.is_efa;
    return is_efa && ((mask & ~supported) != 0 ||
                      ((mask & IBV_QP_PORT) != 0 && attributes.port_num != 1) ||
                      ((mask & IBV_QP_PKEY_INDEX) != 0 && attributes.pkey_index != 0))
               ? EOPNOTSUPP
               : 0;
}

} // namespace

int modify_rate_limit(Qp& qp, const ibv_qp_rate_limit_attr& limit) {
    // Reject unknown bits of comp_mask. Also reject burst parameters without a rate limit, as
    // libmlx5 does.
    if (limit.comp_mask != 0 ||
        ((limit.max_burst_sz != 0 || limit.typical_pkt_sz != 0) && limit.rate_limit == 0)) {
        return EINVAL;
    }
    ibv_qp_attr attributes{};
    attributes.rate_limit = limit.rate_limit;
    return modify_qp(qp, attributes, IBV_QP_RATE_LIMIT);
}

int query_ece(const Qp& qp, ibv_ece& ece) {
    if (!device_of(qp.qp_base).rules.is_mlx5) {
        return EOPNOTSUPP;
    }
    ece = {.vendor_id = ece_vendor, .options = qp.ece_options, .comp_mask = 0};
    return 0;
}

int set_ece(Qp& qp, const ibv_ece& ece) {
    if (ece.vendor_id == 0 || !device_of(qp.qp_base).rules.is_mlx5) {
        return EOPNOTSUPP;
    }
    if (ece.vendor_id != ece_vendor || ece.comp_mask != 0) {
        return EINVAL;
    }
    qp.requested_ece_options = ece.options;
    qp.ece_options = 0;
    return 0;
}

int modify_qp(Qp& qp, const ibv_qp_attr& attributes, int mask) {
    if (qp.target != nullptr) {
        const int error = modify_qp(*qp.target, attributes, mask);
        qp.current_state = qp.target->state();
        return error;
    }
    mask &= ~ignored_attributes(qp.type());
    if (const int error = check_efa(qp, attributes, mask); error != 0) {
        return error;
    }
    const bool changes_state = (mask & IBV_QP_STATE) != 0;
    if (changes_state &&
        (attributes.qp_state == IBV_QPS_RESET || attributes.qp_state == IBV_QPS_ERR)) {
        process().engine.leaving(qp);
    }
    const ibv_qp_state from = qp.state();
    const ibv_qp_state to = changes_state ? attributes.qp_state : from;
    const Transition rule = transition(qp.type(), from, to);
    int given = mask & ~static_cast<int>(IBV_QP_STATE);
    if (to == IBV_QPS_RTS && can_be_limited(qp)) {
        given &= ~static_cast<int>(IBV_QP_RATE_LIMIT);
    }
    if (!rule.allowed || (given & rule.required) != rule.required ||
        (given & ~(rule.required | rule.optional)) != 0 ||
        ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) ||
        !are_valid(qp, attributes, mask)) {
        return EINVAL;
    }
    if (qp.srd != nullptr && from == IBV_QPS_RTR && to == IBV_QPS_RTS) {
        qp.attributes.rnr_retry = max_retries; // if the program does not set it: no limit
    }
    store(qp.attributes, attributes, mask);
    if (qp.requested_ece_options != 0) {
        qp.ece_options = std::exchange(qp.requested_ece_options, 0) & supported_ece_options;
    }
    if (to == IBV_QPS_RESET) {
        reset(qp);
    } else if (to == IBV_QPS_ERR) {
        enter_error(qp);
    } else {
        qp.current_state = to;
    }
    if (to == IBV_QPS_SQD && from != IBV_QPS_SQD) {
        qp.attributes.sq_draining = 1;
    } else if (to == IBV_QPS_RTS) {
        qp.attributes.sq_draining = 0;
    }
    process().engine.state_changed(qp, from);
    end_draining(qp);
    process().engine.wait_for_writes();
    return 0;
}

} // namespace softverbs
