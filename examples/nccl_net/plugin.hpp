// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <rdmabuf/transport.hpp>

#include "communicator.hpp"
#include "nccl_net_abi.hpp"
#include "nic.hpp"

namespace nccl_net {

/// A listenComm of NCCL.
struct Listener {
    const Nic& nic;
    std::shared_ptr<rdmabuf::transport::Endpoint> endpoint;
    rdmabuf::transport::Listener listener;
};

/// An `mhandle` of NCCL is a pointer to an object of this type.
using Memory = rdmabuf::transport::Memory;

/// The plugin, independent of the version of NCCL's function table. It is thread safe, except that
/// two threads must not use the same listener, handle or communicator at the same time.
class Plugin {
  public:
    /// Returns the only instance of the plugin.
    [[nodiscard]] static Plugin& instance();
    /// Destroys the instance when the library is unloaded. If NCCL has not closed all listeners and
    /// communicators, the instance is leaked, because other threads may still use it at process
    /// exit.
    static void unload() noexcept;

    /// Finds the usable devices, unless an earlier call has found some. @return system_error if no
    /// device is usable
    abi::Result start(abi::Logger logger);
    /// Call this function once for each call of start(). The last of these calls ends the
    /// connection attempts in progress.
    void stop() noexcept;

    [[nodiscard]] int device_count();
    /// Returns the device with the number @p device, counted from 0. Logs an error and returns
    /// nullptr if the number is out of range. The pointer is valid until the plugin is destroyed.
    [[nodiscard]] Nic* nic(int device);

    abi::Result listen(int device, void* handle, void*& listener);
    /// Makes progress on a connection attempt without waiting. Sets @p comm to nullptr until both
    /// ends are connected.
    /// @param handle  the peer's handle, in which the first call stores the number of the attempt
    abi::Result connect(int device, void* handle, void*& comm);
    abi::Result accept(Listener& listener, void*& comm);

    void close(Listener* listener) noexcept;
    void close(Communicator* comm) noexcept;

  private:
    using Endpoint = rdmabuf::transport::Endpoint;

    /// The contents of an NCCL handle: the handle of the transport's listener, and the number of
    /// the connection attempt in the connecting process, or 0 before the first connect().
    struct WireHandle {
        std::array<std::byte, rdmabuf::transport::Handle::wire_size> listener;
        std::uint64_t connection;
    };
    static_assert(sizeof(WireHandle) <= abi::handle_size);

    struct Connection {
        const Nic& nic;
        std::shared_ptr<Endpoint> endpoint;
        rdmabuf::transport::Connector connector;
    };

    /// Returns the endpoint of @p nic that is already in use, or opens one. If opening fails, logs
    /// the reason and returns an empty pointer.
    [[nodiscard]] std::shared_ptr<Endpoint> open(const Nic& nic, const char* function);
    [[nodiscard]] Connection* find(std::uint64_t connection);
    [[nodiscard]] Connection* begin(const Nic& nic, WireHandle& handle);
    [[nodiscard]] void* make_communicator(const Nic& nic, std::shared_ptr<Endpoint> endpoint,
                                          rdmabuf::transport::Channel channel);

    std::mutex mutex_;
    std::vector<Nic> nics_;
    std::map<const Nic*, std::weak_ptr<Endpoint>> endpoints_;
    std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;
    std::uint64_t last_connection_ = 0;
    unsigned starts_ = 0;
    /// The number of listeners and communicators that NCCL has not closed.
    std::atomic<unsigned> open_ = 0;
};

// register_memory() implements NCCL's regMr, and register_dmabuf() implements regMrDmaBuf. The
// caller owns the object @p memory, and must delete it.

abi::Result register_memory(const Communicator& comm, void* data, std::size_t size, int kind,
                            void*& memory);
abi::Result register_dmabuf(const Communicator& comm, void* data, std::size_t size,
                            std::uint64_t offset, int fd, void*& memory);

} // namespace nccl_net
