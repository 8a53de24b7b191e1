// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/clock.hpp"
#include "fabric/host_address.hpp"
#include "fabric/unique_fd.hpp"

namespace softverbs {

struct Port {
    ibv_port_attr attributes{};
    std::vector<ibv_gid_entry> gids;
    std::vector<std::uint16_t> pkeys{0xffff};
};

/// Properties of a device that are not in ibv_device_attr_ex. The device profile sets them, and
/// softverbs_set_dmabuf_errors() changes some of them.
struct Rules {
    /// Errno with which ibv_reg_dmabuf_mr() fails before it checks the file descriptor. 0: no
    /// error.
    int dmabuf_error = 0;
    /// Errno with which ibv_reg_dmabuf_mr() fails after the check of the file descriptor. 0: no
    /// error.
    int dmabuf_attach_error = 0;
    bool dmabuf_unchecked = false; // also register descriptors that fail the check
    /// Access flags for which ibv_reg_dmabuf_mr() fails with EOPNOTSUPP.
    unsigned dmabuf_refused_access = 0;
    /// Whether the device behaves like an mlx5 device: for example, the functions of mlx5dv.h
    /// accept it, and the CPU copies small payloads when their completions are polled (see
    /// scatter_to_cqe.hpp).
    bool is_mlx5 = false;
    /// Whether the device behaves like EFA: the functions of efadv.h accept it, and verbs have the
    /// restrictions of libefa and of the efa kernel driver. See efa.hpp.
    bool is_efa = false;
    /// Whether the device supports IBV_WR_ATOMIC_WRITE. Only ibv_wr_atomic_write() can post it.
    bool atomic_write = true;
    /// The types of queue pairs that the device does not support (bits 1 << ibv_qp_type).
    unsigned refused_qp_types = 0;
    /// The errno with which the creation of a queue pair of a type in refused_qp_types fails.
    int refused_qp_type_error = EOPNOTSUPP;
    /// Maximum ibv_qp_cap::max_inline_data of a queue pair.
    std::uint32_t max_inline = 1024;
    /// The length of an allocation of device memory, rounded up to a multiple of this number of
    /// bytes, counts against max_dm_size.
    std::size_t dm_granule = 64;
};

/// A software device, which ibv_get_device_list() returns. The device is freed only by
/// softverbs_reset(), if no device list and no context uses it.
struct Device : ibv_device {
    unsigned index = 0;
    /// Node GUID in network byte order.
    __be64 guid = 0;
    ibv_device_attr_ex attributes{};
    std::vector<Port> ports; // ports[0] is port number 1
    int completion_vectors = 4;
    unsigned features = ~0U;
    Rules rules;
    /// The IP address of this host that the device uses to reach other hosts. Zeros if the network
    /// between hosts is disabled.
    fabric::HostAddress address;
    /// Number of bytes of max_dm_size that the allocations of device memory use; see
    /// Rules::dm_granule.
    std::size_t dm_used = 0;
    /// Number of device lists and contexts that use this device.
    unsigned holders = 0;
    /// The time at which the last delayed registration of this device ends
    /// (SOFTVERBS_REGISTRATION_DELAY), in nanoseconds of fabric::now_ns(). Accessed with
    /// std::atomic_ref, without Process::lock.
    std::uint64_t registrations_end_ns = 0;

    [[nodiscard]] bool has(softverbs_feature feature) const { return (features & feature) != 0; }
    [[nodiscard]] Port* port(unsigned number) {
        return number >= 1 && number <= ports.size() ? &ports[number - 1] : nullptr;
    }
};

/// An eventfd(2) for asynchronous events or completion events. Its counter is the number of queued
/// events that the program has not received. The program can wait for events with poll(2).
class EventDescriptor {
  public:
    /// Creates the eventfd. Returns 0 or an errno, such as EMFILE.
    [[nodiscard]] int open() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }
    /// Adds one to the number of events that the program has not received.
    void raise() noexcept;
    /// Waits until there is an event that the program has not received, and subtracts one from the
    /// number of these events. Returns 0 or an errno: EAGAIN (there is no event, and the program
    /// has made the eventfd non-blocking), EINTR. The caller must not hold Process::lock. The
    /// function is not noexcept, because pthread_cancel(3) can unwind the stack here. A cancelled
    /// call does not change the number of events.
    [[nodiscard]] int take() const;
    /// Subtracts one from the number of events that the program has not received, unless it is
    /// already 0. Does not block. Has no effect if the kernel does not support RWF_NOWAIT for an
    /// eventfd.
    void retract() const noexcept;

  private:
    fabric::UniqueFd fd_;
};

struct DeviceFile; // defined in device_file.hpp

struct Context : verbs_context {
    Device* device = nullptr;
    /// The file to which ibv_context::cmd_fd refers. A context that ibv_import_device() creates
    /// from this file descriptor shares the object.
    std::shared_ptr<DeviceFile> file;
    EventDescriptor async;
    std::deque<ibv_async_event> async_events;
    /// Number of verbs objects, such as PDs and CQs, that belong to this context. MRs and MWs are
    /// not included: they count as users of their PD.
    unsigned users = 0;
    /// Whether the device has failed (IBV_EVENT_DEVICE_FATAL). Verbs then fail with EIO, except
    /// those that destroy objects, poll completions or read events.
    bool dead = false;
};

/// Return the softverbs object of a device or context of the program. Return null if the device or
/// context belongs to the real libibverbs.
[[nodiscard]] Device* ours(ibv_device* device) noexcept;
[[nodiscard]] Context* ours(ibv_context* context) noexcept;

/// Adds an asynchronous event to the event queue of the context, and makes ibv_context::async_fd
/// readable.
void raise_event(Context& context, const ibv_async_event& event);

struct SharedObject; // defined in object_table.hpp

/// The number of objects that use a protection domain. If the protection domain belongs to another
/// process, the operators also change the number in shared memory.
class PdUsers {
  public:
    PdUsers& operator+=(unsigned change) noexcept {
        count_ += change;
        if (shared_ != nullptr) {
            shared_->fetch_add(change, std::memory_order_relaxed);
        }
        return *this;
    }
    PdUsers& operator++() noexcept { return *this += 1; }
    PdUsers& operator--() noexcept { return *this += ~0U; }
    operator unsigned() const noexcept { return count_; } // NOLINT(google-explicit-constructor)
    void share(std::atomic<std::uint32_t>& users) noexcept { shared_ = &users; }

  private:
    unsigned count_ = 0;
    std::atomic<std::uint32_t>* shared_ = nullptr;
};

/// A protection domain, or a parent domain (see parent_domain.hpp).
struct Pd : ibv_pd {
    Pd() : ibv_pd{} {}
    Pd(const Pd&) = delete;
    Pd& operator=(const Pd&) = delete;
    ~Pd() = default;
    PdUsers users;
    /// The entry in DeviceFile::table; null for an imported protection domain, and for one that
    /// other processes cannot import.
    SharedObject* shared = nullptr;
    /// The protection domain for access checks. For a parent domain, the protection domain with
    /// which it was created. For an imported protection domain, the original protection domain.
    /// Otherwise, this object.
    Pd* protection = this;
    /// Whether ibv_import_pd() has created this object.
    bool imported = false;

    [[nodiscard]] bool is_parent_domain() const noexcept { return protection != this && !imported; }
};

/// Return the softverbs context or device of a verbs object. The verbs object must belong to
/// softverbs.
[[nodiscard]] inline Context& context_of(ibv_context* context) noexcept {
    return *static_cast<Context*>(verbs_get_ctx(context));
}
template <class Native>
[[nodiscard]] Context& context_of(const Native& object) noexcept {
    return context_of(object.context);
}
template <class Native>
[[nodiscard]] Device& device_of(const Native& object) noexcept {
    return *context_of(object).device;
}

/// Returns whether the device has a clock for completion timestamps.
[[nodiscard]] inline bool has_clock(const Device& device) noexcept {
    return device.attributes.hca_core_clock != 0 &&
           device.attributes.completion_timestamp_mask != 0;
}
/// Returns the current time of the device's clock in ticks: fabric::now_ns(), converted to the
/// frequency and the number of bits that the device reports.
[[nodiscard]] inline std::uint64_t clock_ticks(const Device& device) noexcept {
    constexpr std::uint64_t ns_per_ms = 1'000'000;
    const std::uint64_t now = fabric::now_ns();
    const std::uint64_t khz = device.attributes.hca_core_clock;
    return (now / ns_per_ms * khz + now % ns_per_ms * khz / ns_per_ms) &
           device.attributes.completion_timestamp_mask;
}

} // namespace softverbs
