// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include <rdmabuf/context.hpp>
#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/protection_domain.hpp>

#include "base/address_space.hpp"
#include "base/file_descriptor.hpp"

namespace rdmabuf {

int detail::CloseDevice::call(ibv_context* context) noexcept {
    errno = 0;
    return ibv_close_device(context) == 0 ? 0 : (errno != 0 ? errno : EIO);
}

namespace {

std::string open_hint(const Device& device, int error) {
    if (error == EACCES || error == EPERM) {
        return device.name() +
               ": no permission for its /dev/infiniband/uverbs node: check udev rules and groups "
               "or, "
               "in a container, --device=/dev/infiniband";
    }
    return device.name();
}

bool has_active_port(const Context& context) {
    const std::uint8_t ports = context.attributes().port_count();
    for (std::uint8_t port = 1; port <= ports; ++port) {
        if (context.port(port).state == IBV_PORT_ACTIVE) {
            return true;
        }
    }
    return false;
}

/// Returns a number by which best_gid() compares GIDs. The GID with the smallest number is the
/// best.
int rank(const GidEntry& entry) noexcept {
    switch (entry.type) {
        case GidType::roce_v2:
            if (entry.gid.is_ipv4_mapped()) {
                return 0;
            }
            return entry.gid.is_link_local() ? 2 : 1;
        case GidType::roce_v1:
            return 3;
        case GidType::infiniband:
            return 4;
    }
    return 5;
}

/// Converts an event of libibverbs to an AsyncEvent. The event type determines which member of the
/// union is valid: see ibv_get_async_event(3).
AsyncEvent describe_event(const ibv_async_event& event) noexcept {
    const auto of = [&event](AsyncEventSource source, const void* object, int port = 0) {
        return AsyncEvent{.type = event.event_type,
                          .object = object,
                          .port = static_cast<std::uint8_t>(port),
                          .source = source};
    };
    switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_COMM_EST:
        case IBV_EVENT_SQ_DRAINED:
        case IBV_EVENT_PATH_MIG:
        case IBV_EVENT_PATH_MIG_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
            return of(AsyncEventSource::queue_pair, event.element.qp);
        case IBV_EVENT_CQ_ERR:
            return of(AsyncEventSource::completion_queue, event.element.cq);
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            return of(AsyncEventSource::shared_receive_queue, event.element.srq);
        case IBV_EVENT_WQ_FATAL:
            return of(AsyncEventSource::work_queue, event.element.wq);
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR:
        case IBV_EVENT_LID_CHANGE:
        case IBV_EVENT_PKEY_CHANGE:
        case IBV_EVENT_SM_CHANGE:
        case IBV_EVENT_CLIENT_REREGISTER:
        case IBV_EVENT_GID_CHANGE:
            return of(AsyncEventSource::port, nullptr, event.element.port_num);
        default:
            return of(AsyncEventSource::device, nullptr);
    }
}

/// Reads the next event into @p event without waiting. The descriptor must be non-blocking.
/// @return false if there is no event, or if a signal interrupted the call
/// @throws Error with the errno value of ibv_get_async_event(3)
bool take_async_event(ibv_context* context, ibv_async_event& event) {
    errno = 0;
    if (ibv_get_async_event(context, &event) == 0) {
        return true;
    }
    detail::check_zero(errno == EAGAIN || errno == EINTR ? 0 : -1, "ibv_get_async_event");
    return false;
}

/// Returns the lane speed of a port as a code. Newer rdma-core has the field active_speed_ex for
/// codes that need more than 8 bits.
template <class Port>
unsigned speed_code(const Port& port) noexcept {
    if constexpr (requires { port.active_speed_ex; }) {
        return port.active_speed_ex != 0 ? port.active_speed_ex : port.active_speed;
    } else {
        return port.active_speed;
    }
}

/// Returns true if one descriptor is a duplicate of the other: both then have the same open file
/// description. Many containers forbid kcmp(2), which compares descriptors directly. There, changes
/// the flag O_APPEND of one descriptor, and tests whether the flag of the other one changes, too.
/// The flag belongs to the open file description, and device files ignore it.
bool is_same_file(int one, int other) noexcept {
    const auto self = static_cast<unsigned long>(::getpid());
    if (const long order = ::syscall(SYS_kcmp, self, self, KCMP_FILE, one, other); order >= 0) {
        return order == 0;
    }
    static std::mutex mutex; // Another thread could compare duplicates of the same description.
    const std::scoped_lock lock(mutex);
    const int flags = ::fcntl(one, F_GETFL);
    bool same = flags >= 0;
    for (const int append : {O_APPEND, 0}) {
        same = same && ::fcntl(one, F_SETFL, (flags & ~O_APPEND) | append) == 0 &&
               (::fcntl(other, F_GETFL) & O_APPEND) == append;
    }
    if (flags >= 0) {
        ::fcntl(one, F_SETFL, flags);
    }
    return same;
}

} // namespace

Context::Context(const Device& device)
    : handle_(Handle::unique([&device] {
          errno = 0;
          return detail::check_pointer(ibv_open_device(device.native()), "ibv_open_device",
                                       [&device](int error) { return open_hint(device, error); });
      }())) {}

Context Context::open(std::string_view name) {
    return Context(DeviceList().find(name));
}

Context Context::open(std::uint64_t guid) {
    return Context(DeviceList().find(guid));
}

Context Context::open_first() {
    const DeviceList devices;
    std::optional<Context> inactive;
    std::optional<Error> failure;
    for (const Device& device : devices) {
        try {
            Context context(device);
            if (has_active_port(context)) {
                return context;
            }
            if (!inactive) {
                inactive = std::move(context);
            }
        } catch (const Error& error) {
            failure = error;
        }
    }
    if (inactive) {
        return *std::move(inactive);
    }
    if (failure) {
        throw *std::move(failure);
    }
    return Context(devices.front());
}

Context Context::adopt(ibv_context* context) {
    return Context(Handle(Handle::unique(context)));
}

Context Context::import_descriptor(UniqueFd command_fd) {
    constexpr const char* function = "ibv_import_device";
    if (!command_fd) {
        throw Error(EBADF, function, "there is no descriptor to import");
    }
    const UniqueFd duplicate = command_fd.duplicate();
    if ((::fcntl(command_fd.get(), F_GETFL) & O_PATH) != 0) {
        throw Error(EBADF, function, "the descriptor was opened with O_PATH");
    }
    // If the import succeeds, libibverbs owns the descriptor: the imported context closes it.
    const int given = command_fd.release();
    errno = 0;
    ibv_context* const imported = ibv_import_device(given);
    if (imported == nullptr) {
        const int error = errno;
        // If ibv_import_device() fails before the provider has made a context, the descriptor is
        // still open. After a later failure, libibverbs has closed the descriptor, and its number
        // may already belong to a file that another thread has opened.
        if (is_same_file(duplicate.get(), given)) {
            ::close(given);
        }
        errno = error;
    }
    return adopt(detail::check_pointer(imported, function, [&](int error) {
        return error == EOPNOTSUPP
                   ? "the provider of this device cannot import a context"
                   : "the descriptor must be a duplicate of the cmd_fd of a context";
    }));
}

Context Context::borrow(ibv_context* context) {
    return Context(Handle::borrow(context));
}

std::string Context::device_name() const {
    return ibv_get_device_name(detail::native_of(*this, "ibv_get_device_name", "Context")->device);
}

DeviceAttributes Context::attributes() const {
    DeviceAttributes attributes;
    constexpr const char* function = "ibv_query_device_ex";
    detail::check_zero(ibv_query_device_ex(detail::native_of(*this, function, "Context"), nullptr,
                                           &attributes.native),
                       function);
    return attributes;
}

ibv_port_attr Context::port(std::uint8_t port) const {
    ibv_port_attr attributes{};
    constexpr const char* function = "ibv_query_port";
    ibv_context* const context = detail::native_of(*this, function, "Context");
    detail::check_zero(ibv_query_port(context, port, &attributes), function, [&](int) {
        return "port " + std::to_string(port) + " of " + device_name() + ", which has ports 1 to " +
               std::to_string(this->attributes().port_count());
    });
    return attributes;
}

std::uint32_t Context::max_message_size() const {
    // If a port reports a max_msg_sz of 0, the maximum message size of InfiniBand applies: 2 GiB.
    std::uint32_t least = std::uint32_t{1} << 31U;
    const std::uint8_t ports = attributes().port_count();
    for (std::uint8_t p = 1; p <= ports; ++p) {
        if (const std::uint32_t limit = port(p).max_msg_sz; limit != 0) {
            least = std::min(least, limit);
        }
    }
    return least;
}

std::vector<GidEntry> Context::gid_table(std::uint8_t port) const {
    // ibv_query_gid_table(3) returns the entries of all ports in one table, so all are counted.
    std::size_t capacity = 0;
    const std::uint8_t ports = attributes().port_count();
    for (std::uint8_t p = 1; p <= ports; ++p) {
        capacity += static_cast<std::size_t>(std::max(this->port(p).gid_tbl_len, 0));
    }
    if (capacity == 0) {
        // An empty GID table is not an error, but ibv_query_gid_table(3) would fail with EINVAL for
        // a capacity of 0.
        return {};
    }
    std::vector<ibv_gid_entry> entries(capacity);
    const ssize_t count = ibv_query_gid_table(native(), entries.data(), entries.size(), 0);
    detail::check_zero(count < 0 ? static_cast<int>(-count) : 0, "ibv_query_gid_table");
    entries.resize(static_cast<std::size_t>(count));

    std::vector<GidEntry> table;
    for (const ibv_gid_entry& entry : entries) {
        const Gid gid = Gid::from_native(entry.gid);
        // The GID index in an address vector has 8 bits. Entries of the GID table with a larger
        // index cannot be used.
        if (entry.port_num == port && !gid.is_zero() && entry.gid_index <= UINT8_MAX) {
            table.push_back({.gid = gid,
                             .index = static_cast<std::uint8_t>(entry.gid_index),
                             .type = static_cast<GidType>(entry.gid_type),
                             .port = port,
                             .netdev_ifindex = entry.ndev_ifindex});
        }
    }
    std::sort(table.begin(), table.end(),
              [](const GidEntry& a, const GidEntry& b) { return a.index < b.index; });
    return table;
}

GidEntry Context::best_gid(std::uint8_t port) const {
    const std::vector<GidEntry> table = gid_table(port);
    const auto best =
        std::min_element(table.begin(), table.end(),
                         [](const GidEntry& a, const GidEntry& b) { return rank(a) < rank(b); });
    if (best == table.end()) {
        throw Error(EADDRNOTAVAIL, "ibv_query_gid_table",
                    "port " + std::to_string(port) + " of " + device_name() +
                        " has no GID: give its network interface an IP address and bring it up");
    }
    return *best;
}

std::optional<AsyncEvent> Context::wait_async_event(std::chrono::milliseconds timeout) const {
    ibv_context* const context = detail::native_of(*this, "ibv_get_async_event", "Context");
    const detail::Deadline deadline(timeout);
    detail::make_nonblocking(context->async_fd);
    while (detail::wait_readable(context->async_fd, deadline.left())) {
        // There may be no event: another thread may have read the event since the descriptor became
        // readable.
        if (ibv_async_event event{}; take_async_event(context, event)) {
            const AsyncEvent described = describe_event(event);
            // The event is acknowledged at once: a function that destroys the object of the event,
            // such as ibv_destroy_qp(3), waits for the acknowledgement.
            ibv_ack_async_event(&event);
            return described;
        }
    }
    return std::nullopt;
}

std::optional<PendingAsyncEvent> Context::get_async_event() const {
    ibv_context* const context = detail::native_of(*this, "ibv_get_async_event", "Context");
    detail::make_nonblocking(context->async_fd);
    auto event = std::make_unique<ibv_async_event>();
    if (!take_async_event(context, *event)) {
        return std::nullopt;
    }
    return PendingAsyncEvent(PendingAsyncEvent::Handle(event.release()));
}

int Context::async_fd() const {
    const int fd = detail::native_of(*this, "Context::async_fd", "Context")->async_fd;
    detail::make_nonblocking(fd);
    return fd;
}

void detail::AckAsyncEvent::operator()(ibv_async_event* event) const noexcept {
    ibv_ack_async_event(event);
    delete event;
}

AsyncEvent PendingAsyncEvent::event() const noexcept {
    assert(event_ != nullptr && "the PendingAsyncEvent was moved from");
    return describe_event(*event_);
}

Availability Context::dmabuf_import() const {
    const ProtectionDomain pd(*this);
    const std::size_t page = detail::page_size();
    errno = 0;
    // If the device can import dma-bufs, the kernel fails with EBADF for descriptor -1. The access
    // flags are 0, because the efa driver would refuse atomic access before the kernel checks the
    // descriptor.
    if (ibv_mr* const mr = ibv_reg_dmabuf_mr(pd.native(), 0, page, 0, -1, 0); mr != nullptr) {
        const int error = ibv_dereg_mr(mr);
        return Availability::no("the provider of " + device_name() +
                                    " registered descriptor -1 as a dma-buf" +
                                    (error != 0 ? " and could not deregister it" : "") +
                                    ": it does not check the descriptor",
                                "report this to the provider's maintainers");
    }
    const int error = errno;
    switch (error) {
        case EBADF:
            return Availability::yes();
        case EPROTONOSUPPORT:
            return Availability::no("this kernel's uverbs cannot register dma-bufs",
                                    "use Linux 5.12 or newer");
        case EOPNOTSUPP:
            return Availability::no(
                "the driver of " + device_name() +
                    " or its rdma-core provider cannot import dma-bufs",
                "use a device and versions that can: mlx5 (Linux 5.12, rdma-core 34), efa (5.16, "
                "38), "
                "irdma (6.3, 45), bnxt_re (6.6, 48), mana (6.15, 57), ionic (6.18, 61)");
        default:
            return Availability::no(
                "registering descriptor -1 on " + device_name() +
                    " should have failed with EBADF, but failed with " + describe_errno(error),
                "register a dma-buf: only a registration shows whether it works");
    }
}

std::uint32_t link_speed(const ibv_port_attr& port) noexcept {
    // The tables convert a code of ibv_port_attr to its value. `speeds`: from active_speed to
    // Mbit/s of one lane. `widths`: from active_width to the number of lanes.
    constexpr std::array<std::array<unsigned, 2>, 9> speeds{{{1, 2500},
                                                             {2, 5000},
                                                             {4, 10000},
                                                             {8, 10000},
                                                             {16, 14000},
                                                             {32, 25000},
                                                             {64, 50000},
                                                             {128, 100000},
                                                             {256, 200000}}};
    constexpr std::array<std::array<unsigned, 2>, 5> widths{
        {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};
    const auto value_of = [](const auto& table, unsigned code) {
        const auto* const found =
            std::ranges::find(table, code, [](const auto& e) { return e[0]; });
        return found == table.end() ? 0U : (*found)[1];
    };
    return value_of(speeds, speed_code(port)) * value_of(widths, port.active_width);
}

} // namespace rdmabuf
