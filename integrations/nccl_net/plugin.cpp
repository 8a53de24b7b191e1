// SPDX-License-Identifier: BSD-3-Clause
#include "plugin.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "communicator.hpp"
#include "log.hpp"
#include "settings.hpp"

namespace nccl_net {
namespace {

using rdmabuf::transport::Channel;
using rdmabuf::transport::Connector;
using rdmabuf::transport::Handle;

/// Logs that a listener or a connection has failed. @return the result for NCCL: not invalid_usage,
/// because EINVAL is then an error of a verbs call, for example because the port is down
abi::Result connection_failed(const char* function, const Nic& nic,
                              const rdmabuf::ErrorInfo& failure) {
    const abi::Result result = log::failed(function, nic.name, failure);
    return result == abi::Result::invalid_usage ? abi::Result::system_error : result;
}

/// A listener or a connector of an endpoint. The destructor takes the lock of the endpoint.
template <class Object>
struct EndpointObject {
    const Nic& nic;
    std::shared_ptr<SharedEndpoint> endpoint;
    Object object;

    EndpointObject(const Nic& by, std::shared_ptr<SharedEndpoint> through, Object created) noexcept
        : nic(by), endpoint(std::move(through)), object(std::move(created)) {}
    EndpointObject(const EndpointObject&) = delete;
    EndpointObject& operator=(const EndpointObject&) = delete;
    ~EndpointObject() {
        const std::lock_guard lock(endpoint->mutex);
        static_cast<void>(Object(std::move(object)));
    }

    /// Advances the connection attempt or the listener by @p step, with the lock of its endpoint.
    /// @param comm  set to a new communicator if this has made a channel
    /// @return the result for NCCL
    /// @throws std::bad_alloc
    [[nodiscard]] abi::Result advance(const char* function,
                                      std::error_code (Object::*step)(std::optional<Channel>&),
                                      void*& comm) {
        const std::lock_guard lock(endpoint->mutex);
        std::optional<Channel> channel; // If an exception is thrown, destroyed before the unlock.
        const std::error_code error = (object.*step)(channel);
        if (channel) {
            comm = make_communicator(nic, endpoint, *std::move(channel));
        }
        return channel || error.value() == EAGAIN
                   ? abi::Result::success
                   : connection_failed(function, nic, object.error_info());
    }
};

/// A listenComm of NCCL.
using Listener = EndpointObject<rdmabuf::transport::Listener>;
/// A connection attempt that is not finished.
using Connection = EndpointObject<Connector>;

/// The contents of an NCCL handle: the handle of the transport's listener, and the ID of the
/// connection attempt in the connecting process. The ID is 0 before the first connect().
struct WireHandle {
    std::array<std::byte, Handle::wire_size> listener;
    std::uint64_t connection;
};
static_assert(sizeof(WireHandle) <= abi::handle_size);

/// An endpoint that is in use. `mutex` is held while the endpoint is opened, which can take long.
/// Plugin::mutex is not held meanwhile.
struct KnownEndpoint {
    std::mutex mutex;
    std::weak_ptr<SharedEndpoint> endpoint;
};

/// An NCCL communicator.
struct Context {
    int traffic_class = abi::undefined_traffic_class;
    /// True after finalize(), which has closed the listeners and connection attempts. The object is
    /// kept until all communicators have ended: after a communicator has ended, NCCL 2.28.3 still
    /// uses its context for the communicators that were split from it (ncclConfig_t::splitShare).
    bool ended = false;
    /// The endpoint for each device and traffic class.
    std::map<std::pair<const Nic*, int>, KnownEndpoint> endpoints;
    // A call that uses an element has a reference to it, because finalize() can close it meanwhile.
    std::map<const void*, std::shared_ptr<Listener>> listeners;
    std::map<std::uint64_t, std::shared_ptr<Connection>> connections;
};

struct Plugin {
    std::mutex mutex;
    std::optional<Settings> settings;
    /// A deque, because other objects have pointers to its elements: the elements do not move when
    /// merged devices are added.
    std::deque<Nic> nics;
    std::size_t physical_nics = 0;
    /// The result of devices().
    std::size_t counted_nics = 0;
    /// For the versions of the function table without contexts.
    Context default_context;
    std::list<Context> contexts;
    std::uint64_t last_connection = 0;

    [[nodiscard]] bool is_unused() const {
        return contexts.empty() && default_context.listeners.empty() && are_communicators_closed();
    }
};

Plugin& plugin() {
    static auto* const instance = new Plugin;
    return *instance;
}

/// Destroys the plugin when the library is unloaded. Does not destroy it at exit(3) while another
/// thread is still in one of its functions and holds the lock, or while NCCL has listeners,
/// communicators or connection attempts that are not closed. The plugin then exists until the
/// process ends.
[[gnu::destructor]] void unload() {
    {
        const std::unique_lock lock(plugin().mutex, std::try_to_lock);
        if (!lock || !plugin().is_unused() || !plugin().default_context.connections.empty()) {
            return;
        }
    }
    delete &plugin();
}

Context& context_of(void* context) noexcept {
    return context != nullptr ? *static_cast<Context*>(context) : plugin().default_context;
}

/// Returns the context of a listener; nullptr if finalize() has closed the listener. The caller
/// must hold Plugin::mutex.
Context* owner_of(const void* listener) noexcept {
    if (plugin().default_context.listeners.contains(listener)) {
        return &plugin().default_context;
    }
    const auto owner = std::ranges::find_if(plugin().contexts, [listener](const Context& context) {
        return context.listeners.contains(listener);
    });
    return owner != plugin().contexts.end() ? &*owner : nullptr;
}

/// Creates a listener or a connector by a call of @p call with the endpoint of a device. Opens the
/// endpoint, unless it is in use already.
/// @param made  set to the object; unchanged after an error, which is logged
template <class Object, class Call>
abi::Result create(const char* function, Context& context, const Nic& nic, int traffic_class,
                   std::shared_ptr<EndpointObject<Object>>& made, const Call& call) {
    std::unique_lock lock(plugin().mutex);
    KnownEndpoint& known = context.endpoints[{&nic, traffic_class}];
    lock.unlock();
    std::unique_lock opening(known.mutex);
    std::shared_ptr<SharedEndpoint> endpoint = known.endpoint.lock();
    if (endpoint == nullptr) {
        auto opened =
            rdmabuf::attempt([&] { return open_nic(nic, *plugin().settings, traffic_class); });
        if (!opened) {
            log::failed(function, nic.name, opened.error_info());
            return abi::Result::system_error;
        }
        known.endpoint = endpoint = *std::move(opened);
    }
    opening.unlock();
    const std::lock_guard using_endpoint(endpoint->mutex);
    rdmabuf::Result<Object> created = call(endpoint->endpoint);
    if (!created) {
        return connection_failed(function, nic, created.error_info());
    }
    made = std::make_shared<EndpointObject<Object>>(nic, endpoint, *std::move(created));
    return abi::Result::success;
}

} // namespace

abi::Result init(abi::Logger logger, int traffic_class, void** context) noexcept {
    return guarded("init", [&] {
        log::logger = logger;
        Plugin& all = plugin();
        const std::lock_guard lock(all.mutex);
        if (all.nics.empty()) {
            const Settings& settings = all.settings.emplace();
            if (settings.disabled) {
                log::info("init", "NCCL_IB_DISABLE=1: no device is used");
                return abi::Result::internal_error;
            }
            if (!settings.listen) {
                log::warn("init", "no interface matches NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY");
                return abi::Result::internal_error;
            }
            all.nics = find_nics(settings);
            all.physical_nics = all.nics.size();
        }
        if (all.nics.empty()) {
            log::info("init", "there is no RDMA device to use");
            return abi::Result::system_error;
        }
        // If nothing uses the plugin, NCCL may have closed this library and opened it again. This
        // object still exists if something else has kept the library loaded. NCCL then creates its
        // merged devices again, so devices() must not count the existing ones.
        if (all.is_unused()) {
            all.counted_nics = all.physical_nics;
            all.default_context.connections.clear();
        }
        if (context != nullptr) {
            Context& created = all.contexts.emplace_back();
            created.traffic_class = traffic_class;
            *context = &created;
        }
        return abi::Result::success;
    });
}

abi::Result finalize(void* context) noexcept {
    // Destroyed after the unlock, because this may close endpoints, which can take long.
    std::list<Context> unused;
    decltype(Context::listeners) listeners;
    decltype(Context::connections) connections;
    const std::lock_guard lock(plugin().mutex);
    Context& ended = context_of(context);
    ended.ended = true;
    listeners.swap(ended.listeners);
    connections.swap(ended.connections);
    if (std::ranges::all_of(plugin().contexts, &Context::ended)) {
        unused.swap(plugin().contexts);
    }
    return abi::Result::success;
}

abi::Result devices(int* count) noexcept {
    const std::lock_guard lock(plugin().mutex);
    *count = static_cast<int>(plugin().counted_nics);
    return abi::Result::success;
}

Nic* find_nic(int device) {
    std::deque<Nic>& nics = plugin().nics;
    const std::lock_guard lock(plugin().mutex);
    const auto i = static_cast<std::size_t>(device);
    if (device < 0 || i >= nics.size()) {
        log::warn("device", "there is no device " + std::to_string(device) +
                                "; the number of devices is " + std::to_string(nics.size()));
        return nullptr;
    }
    return &nics[i];
}

abi::Result merge(std::span<const int> members, int& device) {
    Plugin& all = plugin();
    const std::lock_guard lock(all.mutex);
    const auto refuse = [](const std::string& reason) {
        log::info("makeVDevice", "devices are not merged: " + reason);
        return abi::Result::invalid_usage;
    };
    // NCCL 2.26 also calls this function for each single device, and does not end if that fails.
    if (!all.settings->merge_devices && members.size() > 1) {
        return refuse("NCCL_IB_MERGE_NICS=0");
    }
    auto merged = merge_nics(all.nics, members);
    if (!merged) {
        return refuse(merged.reason());
    }
    const auto known = std::find_if(
        all.nics.begin() + static_cast<std::ptrdiff_t>(all.physical_nics), all.nics.end(),
        [&](const Nic& nic) { return nic.properties.merged == merged->properties.merged; });
    const auto index = static_cast<std::size_t>(known - all.nics.begin());
    device = static_cast<int>(index);
    if (known == all.nics.end()) {
        log::info("makeVDevice", "[" + std::to_string(device) + "] " + merged->name + ", " +
                                     std::to_string(merged->properties.link.speed) + " Mbit/s");
        all.nics.push_back(*std::move(merged));
    }
    all.counted_nics = std::max(all.counted_nics, index + 1);
    return abi::Result::success;
}

abi::Result listen(void* context, int device, void* handle, void** listener) noexcept {
    return guarded("listen", [&] {
        Context& used = context_of(context);
        const Nic* const nic = find_nic(device);
        if (nic == nullptr) {
            return abi::Result::internal_error;
        }
        std::shared_ptr<Listener> made;
        const abi::Result result = create(
            "listen", used, *nic, used.traffic_class, made,
            [](const auto& endpoint) { return endpoint.listen(*plugin().settings->listen); });
        if (made == nullptr) {
            return result;
        }
        WireHandle wire{};
        std::ranges::copy(made->object.handle().bytes(), wire.listener.begin());
        std::memcpy(handle, &wire, sizeof wire);
        *listener = made.get();
        const std::lock_guard lock(plugin().mutex);
        used.listeners.emplace(made.get(), std::move(made));
        return abi::Result::success;
    });
}

abi::Result connect(void* context, int device, const abi::Config* config, void* handle,
                    void** comm) noexcept {
    *comm = nullptr;
    return guarded("connect", [&] {
        Context& used = context_of(context);
        WireHandle wire{};
        std::memcpy(&wire, handle, sizeof wire);
        std::shared_ptr<Connection> attempt;
        {
            const std::lock_guard lock(plugin().mutex);
            const auto known = used.connections.find(wire.connection);
            attempt = known != used.connections.end() ? known->second : nullptr;
        }
        if (attempt == nullptr) {
            const Nic* const nic = find_nic(device);
            if (nic == nullptr) {
                return abi::Result::system_error;
            }
            const abi::Result result =
                create("connect", used, *nic,
                       config != nullptr ? config->traffic_class : used.traffic_class, attempt,
                       [&](const auto& endpoint) {
                           const auto peer = Handle::decode(wire.listener);
                           return peer ? endpoint.start_connect(*peer)
                                       : rdmabuf::Result<Connector>(peer.error_info());
                       });
            if (attempt == nullptr) {
                return result;
            }
            const std::lock_guard lock(plugin().mutex);
            wire.connection = ++plugin().last_connection;
            used.connections.emplace(wire.connection, attempt);
            std::memcpy(handle, &wire, sizeof wire);
        }
        const abi::Result result = attempt->advance("connect", &Connector::try_connect, *comm);
        if (*comm != nullptr || result != abi::Result::success) {
            const std::lock_guard lock(plugin().mutex);
            used.connections.erase(wire.connection);
        }
        return result;
    });
}

abi::Result accept(void* listener, void** comm, abi::DeviceHandle** /*offload*/) noexcept {
    *comm = nullptr;
    return guarded("accept", [&] {
        std::unique_lock lock(plugin().mutex);
        Context* const context = owner_of(listener);
        if (context == nullptr) {
            log::warn("accept", "finalize() has closed the listener");
            return abi::Result::internal_error;
        }
        const std::shared_ptr<Listener> used = context->listeners.at(listener);
        lock.unlock();
        return used->advance("accept", &rdmabuf::transport::Listener::try_accept, *comm);
    });
}

abi::Result close_listen(void* listener) noexcept {
    // Destroyed after the unlock, because this may close the endpoint, which can take long.
    decltype(Context::listeners)::node_type closed;
    const std::lock_guard lock(plugin().mutex);
    if (Context* const context = owner_of(listener); context != nullptr) {
        closed = context->listeners.extract(listener);
    }
    return abi::Result::success;
}

} // namespace nccl_net
