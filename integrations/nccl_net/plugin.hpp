// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "communicator.hpp"
#include "nccl_net_abi.hpp"
#include "nic.hpp"
#include "settings.hpp"

namespace nccl_net {

/// An NCCL communicator. NCCL passes communicators to the plugin since version 11 of the function
/// table. With older versions, one Context is used for all NCCL communicators of the process.
struct Context {
    /// The traffic class that NCCL requests; abi::undefined_traffic_class: none.
    int traffic_class = abi::undefined_traffic_class;
    /// True after stop(). The object is then kept until all communicators have ended: after a
    /// communicator has ended, NCCL 2.28.3 still uses its context for the communicators that were
    /// split from it (ncclConfig_t::splitShare).
    bool ended = false;
};

/// A listener or a connector of an endpoint. The destructor takes the lock of the endpoint.
template <class Object>
struct EndpointObject {
    const Context& context;
    const Nic& nic;
    std::shared_ptr<SharedEndpoint> endpoint;
    Object object;

    EndpointObject(const Context& of, const Nic& by, std::shared_ptr<SharedEndpoint> through,
                   Object created) noexcept
        : context(of), nic(by), endpoint(std::move(through)), object(std::move(created)) {}
    EndpointObject(const EndpointObject&) = delete;
    EndpointObject& operator=(const EndpointObject&) = delete;
    ~EndpointObject() {
        const std::lock_guard lock(endpoint->mutex);
        static_cast<void>(Object(std::move(object)));
    }
};

/// A listenComm of NCCL.
using Listener = EndpointObject<rdmabuf::transport::Listener>;

/// The plugin, independent of the version of NCCL's function table. It is thread safe, except that
/// two threads must not use the same listener or handle at the same time. See also Communicator.
class Plugin {
  public:
    [[nodiscard]] static Plugin& instance();
    /// Destroys the instance when the library is unloaded. If NCCL has listeners, communicators or
    /// connection attempts that are not closed, the instance is leaked, because other threads may
    /// still use it at process exit.
    static void unload() noexcept;

    /// Finds the usable devices, unless an earlier call has found some.
    /// @param context  set to the Context of a new NCCL communicator; nullptr for older versions of
    ///                 the function table, which have no contexts. With these versions, NCCL calls
    ///                 init() only once.
    /// @return system_error if no device is usable; internal_error if the environment disables the
    ///         plugin, or selects no network interface
    abi::Result start(abi::Logger logger, int traffic_class, void** context);
    /// Ends an NCCL communicator: the counterpart of start() with a context. When all communicators
    /// have ended, closes the listeners and connection attempts that NCCL has forgotten: those of
    /// communicators that were aborted before both ends were connected.
    void stop(void* context) noexcept;

    /// Returns the number of devices: those that start() has found, and the merged devices that
    /// NCCL has requested since the plugin was last unused. Merged devices from before that time
    /// keep their indices, because a later NCCL communicator may use them without creating them
    /// again (NCCL_NET_PLUGIN_REF_COUNT=1).
    [[nodiscard]] int device_count();
    /// Returns the device with the index @p device. Logs an error and returns nullptr if the index
    /// is out of range. The pointer is valid until the plugin is destroyed.
    [[nodiscard]] Nic* nic(int device);
    /// Merges the devices with the indices @p members, unless they are merged already.
    /// @param device  set to the index of the merged device
    abi::Result merge(std::span<const int> members, int& device);

    /// @param context  the context that start() returned; nullptr for versions without contexts
    abi::Result listen(void* context, int device, void* handle, void*& listener);
    /// Makes progress on a connection attempt without waiting. Sets @p comm to nullptr until both
    /// ends are connected.
    /// @param config  the configuration of this connection; nullptr: the traffic class of the
    ///                context
    /// @param handle  the handle of the peer. The first call stores the ID of the connection
    ///                attempt in it
    abi::Result connect(void* context, int device, const abi::Config* config, void* handle,
                        void*& comm);
    abi::Result accept(Listener& listener, void*& comm);

    void close(const Listener* listener) noexcept;
    void close(Communicator* comm) noexcept;

  private:
    /// The contents of an NCCL handle: the handle of the transport's listener, and the ID of the
    /// connection attempt in the connecting process. The ID is 0 before the first connect().
    struct WireHandle {
        std::array<std::byte, rdmabuf::transport::Handle::wire_size> listener;
        std::uint64_t connection;
    };
    static_assert(sizeof(WireHandle) <= abi::handle_size);

    /// A connection attempt that is not finished.
    using Connection = EndpointObject<rdmabuf::transport::Connector>;
    /// The key of an endpoint: its NCCL communicator, device and traffic class.
    using EndpointKey = std::tuple<const Context*, const Nic*, int>;
    /// The endpoint of an EndpointKey. `mutex` is held while the endpoint is opened, which can take
    /// long. Plugin::mutex_ is not held meanwhile.
    struct KnownEndpoint {
        std::mutex mutex;
        std::weak_ptr<SharedEndpoint> endpoint;
    };

    /// Older versions of the NCCL interface have no contexts and pass a null pointer: the result is
    /// then the default context.
    [[nodiscard]] const Context& context_of(const void* context) const noexcept {
        return context != nullptr ? *static_cast<const Context*>(context) : default_context_;
    }
    /// Returns the endpoint that is already in use for this context, device and traffic class, or
    /// opens a new one. If opening fails, logs the reason and returns an empty pointer.
    [[nodiscard]] std::shared_ptr<SharedEndpoint> open(const Context* context, const Nic& nic,
                                                       int traffic_class, const char* function);
    /// Advances a connection attempt or a listener by @p advance, with the lock of its endpoint.
    /// @param comm  set to a new Communicator if this has made a channel
    /// @return the result of @p advance
    /// @throws std::bad_alloc
    template <class Object>
    [[nodiscard]] std::error_code finish(
        EndpointObject<Object>& attempt,
        std::error_code (Object::*advance)(std::optional<rdmabuf::transport::Channel>&),
        void*& comm);
    /// @param connection  set to the new connection attempt
    [[nodiscard]] abi::Result start_connection(const Context& context, const Nic& nic,
                                               int traffic_class, WireHandle& handle,
                                               Connection*& connection);

    std::mutex mutex_;
    Settings settings_;
    /// A deque, because other objects have pointers to its elements: the elements do not move when
    /// merged devices are added.
    std::deque<Nic> nics_;
    std::size_t physical_nics_ = 0;
    /// The result of device_count().
    std::size_t counted_nics_ = 0;
    Context default_context_;
    std::vector<std::unique_ptr<Context>> contexts_;
    std::map<EndpointKey, std::shared_ptr<KnownEndpoint>> endpoints_;
    std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::map<const Listener*, std::unique_ptr<Listener>> listeners_;
    std::uint64_t last_connection_ = 0;
    /// The number of communicators that NCCL has not closed.
    std::atomic<unsigned> open_ = 0;
};

} // namespace nccl_net
