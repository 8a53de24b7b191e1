// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// A stand-in for libibverbs, its providers and the kernel, for as long as there is no software
/// device. Linked into a program ahead of libibverbs, it answers the ibv_* calls. It keeps the
/// rules that decide about ownership (what is in use cannot be destroyed), remembers what it was
/// asked, fails when told to, and moves no data.
namespace standin {

struct Port {
    ibv_port_attr attributes{};
    std::vector<ibv_gid_entry> gids;
};

/// What a provider does about copying to and from device memory.
enum class DmCopy : std::uint8_t { works, null_pointers, garbage_pointers };

struct Device {
    std::string name;
    /// In host byte order.
    std::uint64_t guid = 0;
    ibv_device_attr_ex attributes{};
    std::vector<Port> ports;
    int completion_vectors = 4;
    /// What opening it fails with.
    int open_error = 0;
    /// Has ibv_create_qp_ex and ibv_wr_*.
    bool extended_queue_pairs = true;
    bool device_memory = true;
    DmCopy dm_copy = DmCopy::works;
    /// What registering a dma-buf fails with: before the descriptor is looked at, as drivers and
    /// kernels without it do, or after, as exporters do.
    int dmabuf_error = 0;
    int dmabuf_attach_error = 0;
    /// Registers descriptors that are not open.
    bool dmabuf_unchecked = false;
};

/// A device with one active Ethernet port, atomics, device memory and dma-buf import.
[[nodiscard]] Device roce_device(std::string name = "standin0",
                                 std::uint64_t guid = 0x0002c903000ae254);
/// A device with one active InfiniBand port.
[[nodiscard]] Device infiniband_device(std::string name = "standin0");
/// @param address  in IPv6 notation
[[nodiscard]] ibv_gid_entry gid_entry(const char* address, std::uint32_t index, ibv_gid_type type,
                                      std::uint32_t port = 1);

/// Forgets everything, frees what is left, and begins with these devices.
void reset(std::vector<Device> devices);
/// For changing a device while it is in use.
[[nodiscard]] Device& device(std::size_t index = 0);

// What is alive

enum class Kind : std::uint8_t {
    list,
    context,
    pd,
    channel,
    cq,
    srq,
    ah,
    mr,
    dm,
    qp,
    event_channel,
    cm_id,
};
[[nodiscard]] std::size_t live(Kind kind);
/// Of all kinds.
[[nodiscard]] std::size_t live();
/// The kinds of what was destroyed, in order: "qp", "cq", "pd", "context".
[[nodiscard]] std::vector<std::string> destroyed();
/// What broke the rules: "ibv_dealloc_pd: still used by 1". Empty in a program without bugs.
[[nodiscard]] std::vector<std::string> violations();
/// Forgets those there were: for tests that break the rules on purpose.
void forgive();
/// Events taken and not acknowledged.
[[nodiscard]] int unacknowledged_events();

// Failing

/// From now on, the n-th call that makes, changes or asks for something fails, once; n counts from
/// 1. Calls that destroy do not count.
void fail_call(unsigned n, int error);
/// The next call of this function fails, once.
void fail_next(std::string_view function, int error);
/// Whether all failures asked for have happened.
[[nodiscard]] bool all_failed();
/// Forgets those that have not.
void cancel_failures();

// What was asked. Lists are complete since reset().

struct Registration {
    std::string function;
    /// The address or, in device memory and dma-bufs, the offset.
    std::uint64_t start;
    std::size_t length;
    std::uint64_t iova;
    int fd;
    unsigned access;
};
struct CqCreation {
    int depth;
    ibv_comp_channel* channel;
    int vector;
};
struct QpModification {
    std::uint32_t number;
    ibv_qp_attr attributes;
    int mask;
};
struct Send {
    ibv_send_wr request;
    std::vector<ibv_sge> entries;
    /// Instead of entries, with IBV_SEND_INLINE through ibv_wr_*.
    std::vector<std::vector<std::uint8_t>> inline_data;
    /// Made with ibv_wr_*.
    bool extended;
    /// Requests of one call have the same number.
    unsigned call;
};
struct Receive {
    ibv_recv_wr request;
    std::vector<ibv_sge> entries;
    /// Into a shared receive queue.
    bool shared;
    unsigned call;
};
struct Record {
    std::vector<Registration> registrations;
    std::vector<CqCreation> cqs;
    std::vector<ibv_srq_init_attr> srqs;
    std::vector<std::uint32_t> srq_limits;
    std::vector<ibv_ah_attr> ahs;
    /// Those made without ibv_create_qp_ex have comp_mask 0.
    std::vector<ibv_qp_init_attr_ex> qps;
    std::vector<QpModification> modifications;
    std::vector<Send> sends;
    std::vector<Receive> receives;
    unsigned aborted_batches = 0;
    std::vector<bool> notifications; // solicited only?
    unsigned dm_copies = 0;
};
[[nodiscard]] const Record& record();

// What happens by itself

/// Adds a completion and, when one was asked for, raises the event.
void complete(ibv_cq* cq, const ibv_wc& completion);
/// Adds one at the next request for an event, just before it counts: too early to raise one.
void complete_before_request(ibv_cq* cq, const ibv_wc& completion);
/// Whether an event was asked for and has not been raised.
[[nodiscard]] bool armed(ibv_cq* cq);
/// Raises the event that was asked for, for a completion that somebody else has taken.
void raise_cq_event(ibv_cq* cq);
/// From now on polling fails.
void break_cq(ibv_cq* cq);
void raise_event(ibv_context* context, const ibv_async_event& event);

} // namespace standin
