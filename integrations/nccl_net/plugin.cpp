// SPDX-License-Identifier: BSD-3-Clause
#include "plugin.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::transport::Channel;
using rdmabuf::transport::Handle;

Plugin& Plugin::instance() {
    static auto* const plugin = new Plugin;
    return *plugin;
}

void Plugin::unload() noexcept {
    Plugin& plugin = instance();
    {
        // Do not destroy the plugin at exit(3) while another thread is still in one of its
        // functions and holds the lock, or while a connection exists. The plugin then exists until
        // the process ends.
        const std::unique_lock lock(plugin.mutex_, std::try_to_lock);
        if (!lock || plugin.open_ != 0 || !plugin.contexts_.empty() || !plugin.listeners_.empty() ||
            !plugin.connections_.empty()) {
            return;
        }
    }
    delete &plugin;
}

abi::Result Plugin::start(abi::Logger logger, int traffic_class, void** context) {
    log::set_logger(logger);
    const std::lock_guard lock(mutex_);
    if (physical_nics_ == 0) {
        settings_ = Settings::read();
        if (settings_.disabled) {
            log::info("init", "NCCL_IB_DISABLE=1: no device is used");
            return abi::Result::internal_error;
        }
        if (!settings_.listen) {
            log::warn("init", "no interface matches NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY");
            return abi::Result::internal_error;
        }
        std::vector<Nic> found = find_nics(settings_);
        nics_.assign(std::move_iterator(found.begin()), std::move_iterator(found.end()));
        physical_nics_ = nics_.size();
    }
    if (physical_nics_ == 0) {
        log::info("init", "there is no RDMA device to use");
        return abi::Result::system_error;
    }
    // If nothing uses the plugin, NCCL may have closed this library and opened it again. This
    // object still exists if something else has kept the library loaded. NCCL then creates its
    // merged devices again, so device_count() must not count the existing ones.
    if (contexts_.empty() && listeners_.empty() && open_ == 0) {
        counted_nics_ = physical_nics_;
        connections_.clear();
        endpoints_.clear();
    }
    if (context != nullptr) {
        contexts_.push_back(std::make_unique<Context>(Context{.traffic_class = traffic_class}));
        *context = contexts_.back().get();
    }
    return abi::Result::success;
}

void Plugin::stop(void* context) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(endpoints_,
                  [&](const auto& entry) { return std::get<0>(entry.first) == context; });
    for (const auto& known : contexts_) {
        known->ended = known->ended || known.get() == context;
    }
    if (!std::ranges::all_of(contexts_, [](const auto& known) { return known->ended; })) {
        return;
    }
    const auto has_ended = [](const auto& entry) { return entry.second->context.ended; };
    std::erase_if(listeners_, has_ended);
    std::erase_if(connections_, has_ended);
    std::erase_if(endpoints_, [](const auto& entry) { return std::get<0>(entry.first)->ended; });
    contexts_.clear();
}

int Plugin::device_count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(counted_nics_);
}

Nic* Plugin::nic(int device) {
    const std::lock_guard lock(mutex_);
    const auto i = static_cast<std::size_t>(device);
    if (device < 0 || i >= nics_.size()) {
        log::warn("device", "there is no device " + std::to_string(device) +
                                "; the number of devices is " + std::to_string(nics_.size()));
        return nullptr;
    }
    return &nics_[i];
}

abi::Result Plugin::merge(std::span<const int> members, int& device) {
    const std::lock_guard lock(mutex_);
    if (!settings_.merge_devices) {
        log::info("makeVDevice", "devices are not merged: NCCL_IB_MERGE_NICS=0");
        return abi::Result::invalid_usage;
    }
    auto merged = merge_nics(nics_, members);
    if (!merged) {
        log::info("makeVDevice", "devices are not merged: " + merged.reason());
        return abi::Result::invalid_usage;
    }
    const auto known =
        std::find_if(nics_.begin() + static_cast<std::ptrdiff_t>(physical_nics_), nics_.end(),
                     [&](const Nic& nic) { return nic.members == merged->members; });
    const auto index = static_cast<std::size_t>(known - nics_.begin());
    device = static_cast<int>(index);
    if (known == nics_.end()) {
        log::info("makeVDevice", "[" + std::to_string(device) + "] " + merged->name + ", " +
                                     std::to_string(merged->speed) + " Mbit/s");
        nics_.push_back(*std::move(merged));
    }
    counted_nics_ = std::max(counted_nics_, index + 1);
    return abi::Result::success;
}

std::shared_ptr<SharedEndpoint> Plugin::open(const Context* context, const Nic& nic,
                                             int traffic_class, const char* function) {
    std::shared_ptr<KnownEndpoint> known;
    {
        const std::lock_guard lock(mutex_);
        std::shared_ptr<KnownEndpoint>& entry = endpoints_[{context, &nic, traffic_class}];
        if (entry == nullptr) {
            entry = std::make_shared<KnownEndpoint>();
        }
        known = entry;
    }
    const std::lock_guard opening(known->mutex);
    if (auto endpoint = known->endpoint.lock()) {
        return endpoint;
    }
    auto opened = rdmabuf::attempt([&] { return open_nic(nic, settings_, traffic_class); });
    if (!opened) {
        log::failed(function, nic.name, opened.error_info());
        return nullptr;
    }
    known->endpoint = *opened;
    return *std::move(opened);
}

abi::Result Plugin::listen(void* context, int device, void* handle, void*& listener) {
    const Context& used = context_of(context);
    const Nic* const chosen = nic(device);
    if (chosen == nullptr) {
        return abi::Result::internal_error;
    }
    auto endpoint = open(&used, *chosen, used.traffic_class, "listen");
    if (endpoint == nullptr) {
        return abi::Result::system_error;
    }
    std::unique_lock lock(endpoint->mutex);
    auto created = endpoint->endpoint.listen(*settings_.listen);
    if (!created) {
        return log::failed("listen", chosen->name, created.error_info());
    }
    WireHandle wire{};
    std::memcpy(wire.listener.data(), created->handle().bytes().data(), wire.listener.size());
    std::memcpy(handle, &wire, sizeof wire);
    auto made = std::make_unique<Listener>(used, *chosen, endpoint, *std::move(created));
    lock.unlock();
    listener = made.get();
    const std::lock_guard adding(mutex_);
    listeners_.emplace(made.get(), std::move(made));
    return abi::Result::success;
}

abi::Result Plugin::start_connection(const Context& context, const Nic& nic, int traffic_class,
                                     WireHandle& handle, Connection*& connection) {
    const auto decoded = Handle::decode(handle.listener);
    if (!decoded) {
        log::warn("connect", nic.name + ": " + decoded.reason());
        return abi::Result::system_error;
    }
    auto endpoint = open(&context, nic, traffic_class, "connect");
    if (endpoint == nullptr) {
        return abi::Result::system_error;
    }
    std::unique_lock endpoint_lock(endpoint->mutex);
    auto started = endpoint->endpoint.start_connect(*decoded);
    if (!started) {
        return log::failed("connect", nic.name, started.error_info());
    }
    auto made = std::make_unique<Connection>(context, nic, endpoint, *std::move(started));
    endpoint_lock.unlock();
    const std::lock_guard lock(mutex_);
    handle.connection = ++last_connection_;
    connection = connections_.emplace(handle.connection, std::move(made)).first->second.get();
    return abi::Result::success;
}

template <class Object>
std::error_code Plugin::finish(EndpointObject<Object>& attempt,
                               std::error_code (Object::*advance)(std::optional<Channel>&),
                               void*& comm) {
    const std::lock_guard lock(attempt.endpoint->mutex);
    std::optional<Channel> channel; // If an exception is thrown, destroyed before the unlock.
    const std::error_code error = (attempt.object.*advance)(channel);
    if (channel) {
        comm = new Communicator(attempt.nic, attempt.endpoint, *std::move(channel));
        ++open_;
    }
    return error;
}

abi::Result Plugin::connect(void* context, int device, const abi::Config* config, void* handle,
                            void*& comm) {
    comm = nullptr;
    WireHandle wire{};
    std::memcpy(&wire, handle, sizeof wire);
    Connection* connection = nullptr;
    {
        const std::lock_guard lock(mutex_);
        const auto known = connections_.find(wire.connection);
        connection = known != connections_.end() ? known->second.get() : nullptr;
    }
    if (connection == nullptr) {
        const Context& used = context_of(context);
        const Nic* const chosen = nic(device);
        const abi::Result started =
            chosen == nullptr
                ? abi::Result::system_error
                : start_connection(used, *chosen,
                                   config != nullptr ? config->traffic_class : used.traffic_class,
                                   wire, connection);
        if (started != abi::Result::success) {
            return started;
        }
        std::memcpy(handle, &wire, sizeof wire);
    }
    const std::error_code error =
        finish(*connection, &rdmabuf::transport::Connector::try_connect, comm);
    if (error.value() == EAGAIN) {
        return abi::Result::success;
    }
    const abi::Result result = comm != nullptr ? abi::Result::success
                                               : log::failed("connect", connection->nic.name,
                                                             connection->object.error_info());
    const std::lock_guard erasing(mutex_);
    connections_.erase(wire.connection);
    return result;
}

abi::Result Plugin::accept(Listener& listener, void*& comm) {
    comm = nullptr;
    const std::error_code error = finish(listener, &rdmabuf::transport::Listener::try_accept, comm);
    return comm != nullptr || error.value() == EAGAIN
               ? abi::Result::success
               : log::failed("accept", listener.nic.name, listener.object.error_info());
}

void Plugin::close(const Listener* listener) noexcept {
    std::unique_lock lock(mutex_);
    const auto closed = listeners_.extract(listener); // Empty if stop() has closed the listener.
    lock.unlock(); // The destructor may close the endpoint, which can take long.
}

void Plugin::close(Communicator* comm) noexcept {
    delete comm;
    --open_;
}

} // namespace nccl_net
