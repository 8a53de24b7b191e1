// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

// The limits and status codes of the device profile efa. They are those of the EFA device with the
// PCI device ID 0xefa1, of the efa kernel driver, and of libefa. RDMA writes are supported, as on
// newer EFA devices.

namespace softverbs::efa {

inline constexpr std::uint32_t max_send_requests = 4096;
inline constexpr std::uint32_t max_receive_requests = 32768;
inline constexpr std::uint16_t max_send_sge = 2;
inline constexpr std::uint16_t max_receive_sge = 3;
inline constexpr std::size_t max_rdma_sge = 1;
inline constexpr std::uint16_t max_inline = 32;
/// The MTU of the device in bytes. It is also the maximum length of a send. RDMA reads and writes
/// can be longer.
inline constexpr std::uint32_t mtu = 8928;
/// Maximum length of an RDMA read or write in bytes.
inline constexpr std::uint32_t max_rdma_length = 1U << 30U;
/// The value of ibv_wc::slid if the receiver has no address handle for the sender.
inline constexpr std::uint16_t unknown_ah = 0xffff;

/// The status codes of an EFA device. ibv_wc::vendor_err of a completion contains the status code.
enum class Status : std::uint8_t {
    success = 0,
    flushed = 1,
    internal_error = 2,
    invalid_ah = 4,
    invalid_lkey = 5,
    bad_length = 6,
    remote_bad_address = 7,     // the rkey does not permit the access
    remote_bad_destination = 9, // the queue pair does not exist, or cannot receive
    remote_not_ready = 10,      // no receive request
    remote_bad_length = 11,     // the receive request is too short
    remote_bad_status = 12,     // the responder could not execute the request
    unresponsive = 13,          // no response, but there were responses to the request before
    remote_unknown_peer = 14,   // the responder has no address handle for the requester
    unreachable = 15,           // there was never a response to the request
};

/// Returns the completion status (ibv_wc::status) that libefa returns for a status code of the
/// device.
[[nodiscard]] constexpr ibv_wc_status wc_status(Status status) noexcept {
    switch (status) {
        case Status::success:
            return IBV_WC_SUCCESS;
        case Status::flushed:
            return IBV_WC_WR_FLUSH_ERR;
        case Status::internal_error:
        case Status::invalid_ah:
            return IBV_WC_LOC_QP_OP_ERR;
        case Status::invalid_lkey:
            return IBV_WC_LOC_PROT_ERR;
        case Status::bad_length:
            return IBV_WC_LOC_LEN_ERR;
        case Status::remote_bad_address:
            return IBV_WC_REM_ACCESS_ERR;
        case Status::remote_bad_destination:
            return IBV_WC_REM_INV_RD_REQ_ERR;
        case Status::remote_not_ready:
            return IBV_WC_RNR_RETRY_EXC_ERR;
        case Status::remote_bad_length:
            return IBV_WC_REM_INV_REQ_ERR;
        case Status::remote_bad_status:
            return IBV_WC_BAD_RESP_ERR;
        case Status::unresponsive:
        case Status::unreachable:
            return IBV_WC_RESP_TIMEOUT_ERR;
        case Status::remote_unknown_peer:
            return IBV_WC_REM_OP_ERR;
    }
    return IBV_WC_GENERAL_ERR;
}

} // namespace softverbs::efa
