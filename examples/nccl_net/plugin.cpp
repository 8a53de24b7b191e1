// SPDX-License-Identifier: BSD-3-Clause
#include "plugin.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "log.hpp"

namespace nccl_net {

using rdmabuf::transport::Channel;
using rdmabuf::transport::Handle;

namespace {

/// Returns the IP address or the interface at which peers connect, from RDMABUF_NCCL_LISTEN. If the
/// result is empty, Endpoint::listen() chooses the interface.
std::string listening_address() {
    const char* const address = std::getenv("RDMABUF_NCCL_LISTEN");
    return address != nullptr ? address : "";
}

} // namespace

Plugin& Plugin::instance() {
    static auto* const plugin = new Plugin;
    return *plugin;
}

void Plugin::unload() noexcept {
    if (Plugin& plugin = instance(); plugin.open_ == 0) {
        delete &plugin;
    }
}

abi::Result Plugin::start(abi::Logger logger) {
    log::set_logger(logger);
    const std::lock_guard lock(mutex_);
    if (nics_.empty()) {
        nics_ = find_nics();
    }
    if (nics_.empty()) {
        log::info("init", "there is no RDMA device to use");
        return abi::Result::system_error;
    }
    ++starts_;
    return abi::Result::success;
}

void Plugin::stop() noexcept {
    const std::lock_guard lock(mutex_);
    if (starts_ > 0 && --starts_ == 0) {
        connections_.clear();
    }
}

int Plugin::device_count() {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(nics_.size());
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

std::shared_ptr<Plugin::Endpoint> Plugin::open(const Nic& nic, const char* function) {
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Endpoint>& known = endpoints_[&nic];
    if (auto endpoint = known.lock()) {
        return endpoint;
    }
    auto opened = open_nic(nic);
    if (!opened) {
        log::failed(function, nic.name, opened.error_info());
        return nullptr;
    }
    auto endpoint = std::make_shared<Endpoint>(*std::move(opened));
    known = endpoint;
    return endpoint;
}

abi::Result Plugin::listen(int device, void* handle, void*& listener) {
    const Nic* const chosen = nic(device);
    if (chosen == nullptr) {
        return abi::Result::internal_error;
    }
    auto endpoint = open(*chosen, "listen");
    if (endpoint == nullptr) {
        return abi::Result::system_error;
    }
    auto begun = endpoint->listen(listening_address());
    if (!begun) {
        return log::failed("listen", chosen->name, begun.error_info());
    }
    WireHandle wire{};
    std::memcpy(wire.listener.data(), begun->handle().bytes().data(), wire.listener.size());
    std::memcpy(handle, &wire, sizeof wire);
    listener = new Listener{
        .nic = *chosen, .endpoint = std::move(endpoint), .listener = *std::move(begun)};
    ++open_;
    return abi::Result::success;
}

Plugin::Connection* Plugin::find(std::uint64_t connection) {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(connection);
    return found == connections_.end() ? nullptr : found->second.get();
}

Plugin::Connection* Plugin::begin(const Nic& nic, WireHandle& handle) {
    const auto decoded = Handle::decode(handle.listener);
    if (!decoded) {
        log::warn("connect", nic.name + ": " + decoded.reason());
        return nullptr;
    }
    auto endpoint = open(nic, "connect");
    if (endpoint == nullptr) {
        return nullptr;
    }
    auto begun = endpoint->start_connect(*decoded);
    if (!begun) {
        log::failed("connect", nic.name, begun.error_info());
        return nullptr;
    }
    auto connection = std::make_unique<Connection>(
        Connection{.nic = nic, .endpoint = std::move(endpoint), .connector = *std::move(begun)});
    const std::lock_guard lock(mutex_);
    handle.connection = ++last_connection_;
    return connections_.emplace(handle.connection, std::move(connection)).first->second.get();
}

abi::Result Plugin::connect(int device, void* handle, void*& comm) {
    comm = nullptr;
    WireHandle wire{};
    std::memcpy(&wire, handle, sizeof wire);
    Connection* connection = find(wire.connection);
    if (connection == nullptr) {
        const Nic* const chosen = nic(device);
        connection = chosen == nullptr ? nullptr : begin(*chosen, wire);
        if (connection == nullptr) {
            return abi::Result::system_error;
        }
        std::memcpy(handle, &wire, sizeof wire);
    }
    std::optional<Channel> channel;
    const std::error_code error = connection->connector.try_connect(channel);
    if (error.value() == EAGAIN) {
        return abi::Result::success;
    }
    abi::Result result = abi::Result::success;
    if (channel) {
        comm = make_communicator(connection->nic, connection->endpoint, *std::move(channel));
    } else {
        result = log::failed("connect", connection->nic.name, connection->connector.error_info());
    }
    const std::lock_guard lock(mutex_);
    connections_.erase(wire.connection);
    return result;
}

void* Plugin::make_communicator(const Nic& nic, std::shared_ptr<Endpoint> endpoint,
                                Channel channel) {
    auto* const comm = new Communicator(nic, std::move(endpoint), std::move(channel));
    ++open_;
    return comm;
}

abi::Result Plugin::accept(Listener& listener, void*& comm) {
    comm = nullptr;
    std::optional<Channel> channel;
    const std::error_code error = listener.listener.try_accept(channel);
    if (channel) {
        comm = make_communicator(listener.nic, listener.endpoint, *std::move(channel));
    } else if (error.value() != EAGAIN) {
        return log::failed("accept", listener.nic.name, listener.listener.error_info());
    }
    return abi::Result::success;
}

void Plugin::close(Listener* listener) noexcept {
    delete listener;
    --open_;
}

void Plugin::close(Communicator* comm) noexcept {
    comm->close();
    delete comm;
    --open_;
}

} // namespace nccl_net
