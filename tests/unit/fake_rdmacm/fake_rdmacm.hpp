// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

/// A fake of librdmacm: linked into a program, it answers the rdma_* calls. There is no peer; a
/// test says what becomes of each step. All addresses lead to one device, of which this needs
/// nothing but the context.
namespace fake_rdmacm {

/// An event as rdma_get_cm_event(3) gives it out.
struct CmEvent {
    rdma_cm_event_type type;
    int status = 0;
    std::string private_data = {};
    /// What errno is when it has been given out.
    int left_errno = 0;
};

/// Told of each call that makes, changes or asks for something. What it returns is the errno that
/// the call fails with; 0: it does not.
using Observer = std::function<int(const char* function)>;
/// Told the kind of what was destroyed: "cm_id", "event_channel".
using Witness = std::function<void(const char* kind)>;

/// Forgets what tests said so far. Ids that find a device find @p device, and its port 1.
void reset(ibv_context* device);
void before_each_call(Observer observer);
void after_each_destruction(Witness witness);

/// What the calls of @p function that begin a step come to from now on, instead of success.
void answer(std::string_view function, const CmEvent& event);
/// They come to nothing: the peer is silent.
void answer_nothing(std::string_view function);
/// Something happens to @p id without having been asked for.
void raise_cm_event(rdma_cm_id* id, const CmEvent& event);
/// A peer connects to @p listener.
void request_connection(rdma_cm_id* listener, std::string_view private_data = {});

/// The next call of this function fails, once.
void fail_next(std::string_view function, int error);
/// Whether all failures asked for have happened.
[[nodiscard]] bool all_failed();
/// Forgets those that have not.
void cancel_failures();

/// How many ids and event channels there are.
[[nodiscard]] std::size_t live();
/// What broke the rules: "rdma_ack_cm_event: not taken, or acknowledged before".
[[nodiscard]] std::vector<std::string> violations();
/// Events taken and not acknowledged.
[[nodiscard]] unsigned unacknowledged_events();

} // namespace fake_rdmacm
