// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <new>
#include <string_view>
#include <vector>

#include "abi/entry.hpp"
#include "cm/manager.hpp"
#include "control/control_socket.hpp"
#include "objects/memory.hpp"
#include "objects/queue_pair.hpp"

namespace softverbs {

namespace {

/// Calls @p function with Process::lock held, and returns its result. Returns EINVAL if the verbs
/// object @p native does not belong to softverbs, and ENOMEM if @p function throws std::bad_alloc.
template <class Native, class Function>
int with(Native* native, const Function& function) {
    if (native == nullptr || ours(native->context) == nullptr) {
        return EINVAL;
    }
    return locked(function);
}

/// Calls @p function, which changes the planned faults of packets, and returns its result. First
/// withdraws the permission of other processes to write directly to memory of this process, because
/// direct writes send no packets to which a fault could apply.
template <class Function>
int change_packet_faults(const Function& function) {
    return locked([&] {
        process().engine.withdraw_writes();
        return function(process().faults);
    });
}

int fail_device(Context& context) {
    if (context.dead) {
        return 0;
    }
    context.dead = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_DEVICE_FATAL;
    raise_event(context, event);
    for (Qp* const qp : process().qps.all()) {
        if (qp != nullptr && qp->qp_base.context == &context.context &&
            qp->state() != IBV_QPS_RESET) {
            const ibv_qp_state from = qp->state();
            enter_error(*qp);
            process().engine.state_changed(*qp, from);
        }
    }
    return 0;
}

/// Makes the connection manager raise RDMA_CM_EVENT_DEVICE_REMOVAL on each rdma_cm_id that uses the
/// device. The caller must not hold Process::lock.
void report_removal(unsigned device) {
    if (cm::Manager* const manager = cm::existing_manager(); manager != nullptr) {
        const std::scoped_lock guard(manager->lock);
        manager->device_removed(device);
    }
}

Completion completion_of(const ibv_wc& native) {
    Completion completion;
    completion.wc = native;
    return completion;
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int softverbs_fail_call(const char* verb, unsigned nth, int error) {
    return locked([&] {
        return process().faults.fail_call(verb != nullptr ? verb : std::string_view(), nth, error);
    });
}

SOFTVERBS_ENTRY int softverbs_fail_packet(softverbs_packet_fault fault, unsigned nth,
                                          unsigned delay_ms) {
    return change_packet_faults(
        [&](Faults& faults) { return faults.fail_packet(fault, nth, delay_ms); });
}

SOFTVERBS_ENTRY int softverbs_set_disorder(const char* text) {
    return locked([&] {
        process().engine.withdraw_responses(); // also withdraws the direct writes of peers
        return process().disorder.set(text == nullptr ? std::string_view()
                                                      : std::string_view(text));
    });
}

SOFTVERBS_ENTRY int softverbs_set_faults(const char* text) {
    try {
        std::vector<DeviceFault> device_faults;
        {
            const Guard guard;
            process().engine.withdraw_writes();
            if (const int error = process().faults.set(text != nullptr ? text : std::string_view(),
                                                       process().devices);
                error != 0) {
                return error;
            }
            device_faults = process().faults.take_device_faults();
        }
        control::cancel_plan();
        return control::plan(device_faults);
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

SOFTVERBS_ENTRY unsigned softverbs_pending_faults() {
    const Guard guard;
    return process().faults.pending();
}

SOFTVERBS_ENTRY void softverbs_clear_faults() {
    const Guard guard;
    process().faults.clear();
    control::cancel_plan();
}

SOFTVERBS_ENTRY int softverbs_revoke_mr(ibv_mr* mr) {
    return with(mr, [&] {
        revoke(*static_cast<Mr*>(mr));
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_fail_device(ibv_context* native) {
    Context* const context = ours(native);
    if (context == nullptr) {
        return EINVAL;
    }
    unsigned device = 0;
    {
        const Guard guard;
        device = context->device->index;
        if (const int error = fail_device(*context); error != 0) {
            return error;
        }
    }
    report_removal(device);
    return 0;
}

SOFTVERBS_ENTRY int softverbs_reset_device(unsigned device) {
    try {
        {
            const Guard guard;
            if (device >= process().devices.size()) {
                return ENODEV;
            }
            for (Context* const context : process().contexts) {
                if (context->device == process().devices[device].get()) {
                    fail_device(*context);
                }
            }
        }
        report_removal(device);
        return 0;
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

SOFTVERBS_ENTRY int softverbs_flap_port(unsigned device, std::uint8_t port, unsigned period_ms,
                                        unsigned times) {
    {
        const Guard guard;
        if (device >= process().devices.size()) {
            return ENODEV;
        }
        if (process().devices[device]->port(port) == nullptr) {
            return EINVAL;
        }
    }
    if (!is_valid_flap(period_ms, times)) {
        return EINVAL;
    }
    const DeviceFault fault{DeviceFault::Kind::flap, device, port, 0, period_ms, times};
    return control::plan({&fault, 1}, false);
}

SOFTVERBS_ENTRY int softverbs_slow_down(unsigned delay_ms) {
    return change_packet_faults([&](Faults& faults) { return faults.slow_down(delay_ms); });
}

SOFTVERBS_ENTRY int softverbs_raise_event(ibv_context* native, const ibv_async_event* event) {
    Context* const context = ours(native);
    if (context == nullptr || event == nullptr) {
        return EINVAL;
    }
    const Guard guard;
    raise_event(*context, *event);
    return 0;
}

SOFTVERBS_ENTRY int softverbs_complete(ibv_cq* cq, const ibv_wc* completion) {
    return with(cq, [&] {
        push(Cq::of(cq), completion_of(*completion));
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_complete_before_request(ibv_cq* cq, const ibv_wc* completion) {
    return with(cq, [&] {
        Cq::of(cq).before_arming.push_back(completion_of(*completion));
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_raise_cq_event(ibv_cq* cq) {
    return with(cq, [&] {
        notify(Cq::of(cq));
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_break_cq(ibv_cq* cq) {
    return with(cq, [&] {
        break_cq(Cq::of(cq));
        return 0;
    });
}
