// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>
#include <string_view>

/// A stand-in for librdmacm, beside that for libibverbs: it answers the rdma_* calls. There is no
/// peer; a test says what becomes of each step. Its ids and event channels are objects of the other
/// part, and fail, live and break rules together with it.
namespace standin {

/// An event as rdma_get_cm_event(3) gives it out.
struct CmEvent {
    rdma_cm_event_type type;
    int status = 0;
    std::string private_data = {};
    /// What errno is when it has been given out.
    int left_errno = 0;
};

/// Forgets what other tests said. Ids that find a device find @p device, and its port 1.
void reset_connections(ibv_context* device);
/// What the calls of @p function that begin a step come to from now on, instead of success.
void answer(std::string_view function, const CmEvent& event);
/// They come to nothing: the peer is silent.
void answer_nothing(std::string_view function);
/// Something happens to @p id without having been asked for.
void raise_cm_event(rdma_cm_id* id, const CmEvent& event);
/// A peer connects to @p listener.
void request_connection(rdma_cm_id* listener, std::string_view private_data = {});

} // namespace standin
