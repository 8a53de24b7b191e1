// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>

#include <cstring>
#include <mutex>
#include <span>

#include "engine/responder.hpp"
#include "objects/posting.hpp"
#include "objects/tag_matching.hpp"

// Finds the receive buffer of a send on a queue pair whose shared receive queue matches tags.

namespace softverbs {

namespace {

/// The tag matching headers (infiniband/tm_types.h) at the start of a message. A message that is
/// too short for its headers has no tag.
struct TagHeaders {
    ibv_tmh message{};
    ibv_rvh rendezvous{};

    explicit TagHeaders(std::span<const std::byte> bytes) {
        if (bytes.size() >= sizeof message) {
            std::memcpy(&message, bytes.data(), sizeof message);
        }
        if (message.opcode == IBV_TMH_RNDV) {
            if (bytes.size() >= sizeof message + sizeof rendezvous) {
                std::memcpy(&rendezvous, bytes.data() + sizeof message, sizeof rendezvous);
            } else {
                message.opcode = IBV_TMH_NO_TAG;
            }
        }
    }
    [[nodiscard]] bool tagged() const noexcept {
        return message.opcode == IBV_TMH_EAGER || message.opcode == IBV_TMH_RNDV;
    }
};

} // namespace

bool InboundRequest::have_tagged_receive() {
    if (responder_.current_taken) {
        return true;
    }
    const TagHeaders headers(packet_.bytes);
    TagList& list = *qp_.shared_queue->tags;
    const bool rendezvous = headers.message.opcode == IBV_TMH_RNDV;
    responder_.tag_opcode = headers.tagged() ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG;
    const auto match = find_match(list, be64toh(headers.message.tag));
    if (headers.tagged() && match != list.entries.end() &&
        (!rendezvous || header_.length <= max_rendezvous_header)) {
        // A rendezvous (an RDMA read of the message data) posts requests to the send queue of this
        // queue pair. Another thread may hold batch_lock, because it is between ibv_wr_start() and
        // ibv_wr_complete(). In this case, reject the message with an RNR NAK.
        std::unique_lock<std::mutex> batch;
        if (rendezvous) {
            batch = qp_.extended ? std::unique_lock(qp_.batch_lock, std::try_to_lock)
                                 : std::unique_lock<std::mutex>();
            if ((qp_.extended && !batch.owns_lock()) || !can_start_rendezvous(qp_)) {
                send_nak(NakCode::rnr);
                return false;
            }
        }
        responder_.current = match->request;
        list.entries.erase(match);
        responder_.current_taken = responder_.matched = true;
        responder_.tag = headers.message.tag;
        responder_.tag_data = headers.message.app_ctx;
        if (rendezvous) {
            match_rendezvous(headers.message, headers.rendezvous);
        }
        return !rendezvous;
    }
    if (!have_receive()) {
        return false;
    }
    list.unexpected += headers.tagged() ? 1 : 0;
    return true;
}

void InboundRequest::match_rendezvous(const ibv_tmh& message, const ibv_rvh& rendezvous) {
    const RecvRequest to = responder_.current;
    if (be32toh(rendezvous.len) > to.capacity()) {
        complete(IBV_WC_TM_RECV, IBV_WC_LOC_LEN_ERR, 0);
        reject();
        return;
    }
    // Report now that the tag has matched. complete_rendezvous() later reports that the data has
    // arrived.
    complete(IBV_WC_TM_RECV, IBV_WC_SUCCESS, 0);
    done();
    start_rendezvous(qp_, to, message, rendezvous);
}

} // namespace softverbs
