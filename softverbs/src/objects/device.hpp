// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace softverbs {

struct Port {
    ibv_port_attr attributes{};
    std::vector<ibv_gid_entry> gids;
    std::vector<std::uint16_t> pkeys{0xffff};
};

/// How a kind of device differs from the default one, beyond its attributes.
struct Rules {
    /// ibv_reg_dmabuf_mr fails with it before the descriptor is looked at; 0: not.
    int dmabuf_error = 0;
    /// And after; 0: not.
    int dmabuf_attach_error = 0;
    bool dmabuf_unchecked = false;
    /// Access flags a dma-buf region cannot have (EOPNOTSUPP).
    unsigned dmabuf_refused_access = 0;
    bool on_demand = true;
    /// Device memory: sizes are rounded up to it.
    std::size_t dm_granule = 64;
    /// What an allocation takes of max_dm_size is a multiple of this.
    std::size_t dm_consumed = 64;
    /// Offsets and lengths of copies are multiples of it (EINVAL).
    std::size_t dm_copy_granule = 1;
    unsigned dm_max_log_align = 12;
};

/// A device as ibv_get_device_list() gives it out. It is never freed: lists and contexts point to
/// it.
struct Device : ibv_device {
    unsigned index = 0;
    /// In network byte order.
    __be64 guid = 0;
    ibv_device_attr_ex attributes{};
    std::vector<Port> ports; // ports[0] is port 1
    int completion_vectors = 4;
    unsigned features = ~0U;
    Rules rules;
    /// Bytes of max_dm_size in use.
    std::size_t dm_used = 0;
    /// Lists and contexts alive.
    unsigned holders = 0;

    [[nodiscard]] bool has(softverbs_feature feature) const { return (features & feature) != 0; }
    [[nodiscard]] Port* port(unsigned number) {
        return number >= 1 && number <= ports.size() ? &ports[number - 1] : nullptr;
    }
};

/// Events in a descriptor that poll(2) can wait for.
class EventDescriptor {
  public:
    EventDescriptor() = default;
    ~EventDescriptor();
    EventDescriptor(const EventDescriptor&) = delete;
    EventDescriptor& operator=(const EventDescriptor&) = delete;

    /// 0, or EMFILE and its like.
    [[nodiscard]] int open() noexcept;
    [[nodiscard]] int fd() const noexcept { return fd_; }
    /// One more event is to be had.
    void raise() noexcept;
    /// Takes one: 0, or EAGAIN (none, and the program made the descriptor non-blocking), EINTR.
    /// Waits, so without the lock.
    [[nodiscard]] int take() const noexcept;
    /// Takes one back, if there is one that nobody has taken. Never waits.
    void retract() const noexcept;

  private:
    int fd_ = -1;
};

struct Context : verbs_context {
    Device* device = nullptr;
    EventDescriptor async;
    std::deque<ibv_async_event> async_events;
    /// Objects made with it that are alive.
    unsigned users = 0;
    /// Of IBV_EVENT_DEVICE_FATAL: calls fail with EIO.
    bool dead = false;
};

/// Null when it is another library's.
[[nodiscard]] Device* ours(ibv_device* device) noexcept;
[[nodiscard]] Context* ours(ibv_context* context) noexcept;

/// Queues an asynchronous event and raises it.
void raise_event(Context& context, const ibv_async_event& event);

struct Pd : ibv_pd {
    Pd() : ibv_pd{} {}
    unsigned users = 0;
};

/// For what is known to be ours.
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
