// SPDX-License-Identifier: BSD-3-Clause
#include "objects/transitions.hpp"

namespace softverbs {

namespace {

constexpr int requester = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

/// Masks of queue pair attributes (IBV_QP_*) for each type of queue pair.
struct Masks {
    int rc = 0;
    int uc = 0;
    int ud = 0;

    /// Returns the mask for a type. XRC_SEND queue pairs have the attributes of RC, except those of
    /// the responder. XRC_RECV queue pairs have the attributes of RC, except those of the
    /// requester; but they have IBV_QP_TIMEOUT.
    [[nodiscard]] constexpr int of(ibv_qp_type type) const noexcept {
        switch (type) {
            case IBV_QPT_RC:
                return rc;
            case IBV_QPT_XRC_SEND:
                return rc & ~responder;
            case IBV_QPT_XRC_RECV:
                return rc & ~requester;
            default:
                return type == IBV_QPT_UC ? uc : ud;
        }
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
constexpr Masks place = {connected_place, connected_place, datagram_place};

constexpr int peer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int tuning = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;

constexpr int retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;

/// The optional attributes of a UC queue pair for the transitions RTR to RTS, RTS to RTS, and SQD
/// to RTS.
constexpr int unreliable_running =
    IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr Masks running = {unreliable_running | IBV_QP_MIN_RNR_TIMER, unreliable_running,
                           IBV_QP_CUR_STATE | IBV_QP_QKEY};

constexpr int unreliable_drained = IBV_QP_AV | tuning | IBV_QP_PATH_MIG_STATE;
constexpr Masks drained = {unreliable_drained | retries | IBV_QP_PORT | IBV_QP_MAX_QP_RD_ATOMIC |
                               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                           unreliable_drained, IBV_QP_PKEY_INDEX | IBV_QP_QKEY};

constexpr Rule rules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, place, {}},
    {IBV_QPS_INIT, IBV_QPS_INIT, {}, place},
    {IBV_QPS_INIT,
     IBV_QPS_RTR,
     {peer | responder, peer, 0},
     {tuning, tuning, IBV_QP_PKEY_INDEX | IBV_QP_QKEY}},
    {IBV_QPS_RTR,
     IBV_QPS_RTS,
     {retries | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN},
     running},
    {IBV_QPS_RTS, IBV_QPS_RTS, {}, running},
    {IBV_QPS_RTS, IBV_QPS_SQD, {}, same(IBV_QP_EN_SQD_ASYNC_NOTIFY)},
    {IBV_QPS_SQD, IBV_QPS_RTS, {}, running},
    {IBV_QPS_SQD, IBV_QPS_SQD, {}, drained},
    // Only UC and UD queue pairs can be in the state SQE.
    {IBV_QPS_SQE,
     IBV_QPS_RTS,
     {},
     {0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS, IBV_QP_CUR_STATE | IBV_QP_QKEY}},
};

} // namespace

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

int ignored_attributes(ibv_qp_type type) noexcept {
    switch (type) {
        case IBV_QPT_XRC_SEND:
            return responder;
        case IBV_QPT_XRC_RECV:
            return requester;
        default:
            return 0;
    }
}

} // namespace softverbs
