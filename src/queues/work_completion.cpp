// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdio>

#include <rdmabuf/work_completion.hpp>

namespace rdmabuf {

const char* completion_hint(ibv_wc_status status) noexcept {
    switch (status) {
        case IBV_WC_LOC_LEN_ERR:
            return "a message was longer than the receive posted for it, or than max_msg_sz";
        case IBV_WC_LOC_PROT_ERR:
            return "a local entry lies outside its region, its lkey belongs to another "
                   "protection domain or was deregistered, or a receive or read has no local_write";
        case IBV_WC_WR_FLUSH_ERR:
            return "the queue pair had already failed or was shut down; see the first failed "
                   "completion";
        case IBV_WC_BAD_RESP_ERR:
            return "the peer sent an unexpected response: connect both queue pairs again";
        case IBV_WC_LOC_ACCESS_ERR:
            return "the local region does not allow this access (needs local_write)";
        case IBV_WC_MW_BIND_ERR:
            return "the region has no memory_window_bind, the range is not inside the region, the "
                   "window is still bound, or MemoryWindow::set_rkey() was not called after its "
                   "last bind request";
        case IBV_WC_REM_INV_REQ_ERR:
            return "the peer refused the request: its receive is too small, or the queue pair does "
                   "not allow the operation or the number of outstanding reads and atomics";
        case IBV_WC_REM_ACCESS_ERR:
            return "the remote address, length, rkey or access flags do not match a region of the "
                   "peer, "
                   "or that region was deregistered or revoked";
        case IBV_WC_REM_OP_ERR:
            return "the peer could not finish the operation; on EFA, the target has no address "
                   "handle for the initiator in its protection domain";
        case IBV_WC_REM_INV_RD_REQ_ERR:
            return "on EFA, the destination queue pair does not exist, or has another Q_Key";
        case IBV_WC_RESP_TIMEOUT_ERR:
            return "the peer does not respond: on EFA, its GID is wrong or unreachable";
        case IBV_WC_RETRY_EXC_ERR:
            return "the peer does not respond: it has exited, was never connected, or the path is "
                   "wrong (GID index, MTU, a switch)";
        case IBV_WC_RNR_RETRY_EXC_ERR:
            return "the peer had no receive posted in time: the peer must post more receives, or "
                   "this side must allow more retries with rnr_retry (7: no limit)";
        case IBV_WC_FATAL_ERR:
            return "the device or its driver failed: see the kernel's log (dmesg)";
        default:
            return "";
    }
}

std::string describe(const WorkCompletion& completion) {
    std::array<char, 64> vendor{};
    if (completion.vendor_err != 0) {
        std::snprintf(vendor.data(), vendor.size(), " (vendor error 0x%x)", completion.vendor_err);
    }
    std::string text = "wr_id " + std::to_string(completion.wr_id) + " on QP " +
                       std::to_string(completion.qp_num) + ": " +
                       ibv_wc_status_str(completion.status) + vendor.data();
    if (const std::string hint = completion_hint(completion.status); !hint.empty()) {
        text.append(": ").append(hint);
    }
    return text;
}

} // namespace rdmabuf
