// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/host_address.hpp"

namespace softverbs {

struct Port {
    ibv_port_attr attributes{};
    std::vector<ibv_gid_entry> gids;
    std::vector<std::uint16_t> pkeys{0xffff};
};

/// Behaviour of a device profile that is not a part of the device attributes.
struct Rules {
    /// If not 0, ibv_reg_dmabuf_mr() fails with this errno before it checks the descriptor.
    int dmabuf_error = 0;
    /// ibv_reg_dmabuf_mr() fails with this errno after it has mapped the descriptor; 0: it does
    /// not.
    int dmabuf_attach_error = 0;
    bool dmabuf_unchecked = false;
    /// Access flags that ibv_reg_dmabuf_mr() does not support (EOPNOTSUPP).
    unsigned dmabuf_refused_access = 0;
    bool on_demand = true;
    /// Whether the device supports IBV_WR_ATOMIC_WRITE, which only ibv_wr_atomic_write() can post.
    bool atomic_write = true;
    /// Sizes of device memory are rounded up to a multiple of this many bytes.
    std::size_t dm_granule = 64;
    /// An allocation consumes a multiple of this many bytes of max_dm_size.
    std::size_t dm_consumed = 64;
    /// Offsets and lengths of copies must be multiples of this (EINVAL): device memory is accessed
    /// by 32-bit words.
    std::size_t dm_copy_granule = 4;
    unsigned dm_max_log_align = 12;
};

/// A device in the list of ibv_get_device_list(). Only softverbs_reset() frees it, and only while
/// no device list or context points to it.
struct Device : ibv_device {
    unsigned index = 0;
    /// Node GUID, in network byte order.
    __be64 guid = 0;
    ibv_device_attr_ex attributes{};
    std::vector<Port> ports; // ports[0] is port number 1
    int completion_vectors = 4;
    unsigned features = ~0U;
    Rules rules;
    /// Address of this host on the network between hosts; zeros: there is no such network.
    fabric::HostAddress address;
    /// Bytes of max_dm_size that are allocated.
    std::size_t dm_used = 0;
    /// Number of device lists and contexts that point to this device.
    unsigned holders = 0;

    [[nodiscard]] bool has(softverbs_feature feature) const { return (features & feature) != 0; }
    [[nodiscard]] Port* port(unsigned number) {
        return number >= 1 && number <= ports.size() ? &ports[number - 1] : nullptr;
    }
};

/// An eventfd(2) that counts the pending events. The program can wait for them with poll(2).
class EventDescriptor {
  public:
    EventDescriptor() = default;
    ~EventDescriptor();
    EventDescriptor(const EventDescriptor&) = delete;
    EventDescriptor& operator=(const EventDescriptor&) = delete;

    /// Creates the descriptor. Returns 0 or an errno, such as EMFILE.
    [[nodiscard]] int open() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// Adds one event.
    void raise() noexcept;
    /// Removes one event, and blocks until there is one. 0, or an errno: EAGAIN (there is no event
    /// and the program made the descriptor non-blocking), EINTR. Call it without Process::lock.
    /// It is a cancellation point of pthread_cancel(3), which unwinds the stack, so it cannot be
    /// noexcept. A cancelled call removes nothing.
    [[nodiscard]] int take() const;
    /// Removes one event if the program has not read it yet. Never blocks.
    void retract() const noexcept;

  private:
    int fd_ = -1;
};

struct DeviceFile; // defined in device_file.hpp

struct Context : verbs_context {
    Device* device = nullptr;
    /// The open device. Contexts that ibv_import_device() creates from cmd_fd of this context share
    /// it.
    std::shared_ptr<DeviceFile> file;
    EventDescriptor async;
    std::deque<ibv_async_event> async_events;
    /// Number of objects of this context that are not destroyed.
    unsigned users = 0;
    /// The device has failed (IBV_EVENT_DEVICE_FATAL): calls fail with EIO.
    bool dead = false;
};

/// The softverbs object behind a handle. Null when the handle belongs to the real libibverbs.
[[nodiscard]] Device* ours(ibv_device* device) noexcept;
[[nodiscard]] Context* ours(ibv_context* context) noexcept;

/// Queues an asynchronous event and makes async_fd readable.
void raise_event(Context& context, const ibv_async_event& event);

/// A protection domain or a parent domain (parent_domain.hpp).
struct Pd : ibv_pd {
    Pd() : ibv_pd{} {}
    Pd(const Pd&) = delete;
    Pd& operator=(const Pd&) = delete;
    ~Pd() = default;
    unsigned users = 0;
    /// The protection domain that access is checked against. For a parent domain, the protection
    /// domain that it was created from; for an imported one, the original; otherwise this object.
    Pd* protection = this;
    /// Whether ibv_import_pd() created this object.
    bool imported = false;

    [[nodiscard]] bool is_parent_domain() const noexcept { return protection != this && !imported; }
};

/// Converts a handle that belongs to softverbs. The function does not check that.
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

} // namespace softverbs
