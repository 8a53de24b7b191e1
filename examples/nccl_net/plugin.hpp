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

/// What NCCL calls a listenComm.
struct Listener {
    const Nic& nic;
    std::shared_ptr<rdmabuf::transport::Endpoint> endpoint;
    rdmabuf::transport::Listener listener;
};

/// NCCL's name for memory: the `mhandle` of the calls.
using Memory = rdmabuf::transport::Memory;

/// What the plugin does, whichever version of the table NCCL calls it by. Thread safe, but for two
/// calls about one listener, one handle or one communicator.
class Plugin {
  public:
    /// There is one.
    [[nodiscard]] static Plugin& instance();
    /// Before the library goes. While NCCL has not closed everything, the instance stays: its
    /// threads may be at work still when the process ends.
    static void unload() noexcept;

    /// Looks for devices, the first time. @return system_error where there is none
    abi::Result start(abi::Logger logger);
    /// Undoes one start(). Connections that NCCL has given up go with the last.
    void stop() noexcept;

    [[nodiscard]] int device_count();
    /// nullptr, and the reason in the log, for a number that is none. Stays where it is.
    [[nodiscard]] Nic* nic(int device);

    abi::Result listen(int device, void* handle, void*& listener);
    /// Sets @p comm to nullptr until both ends are connected.
    abi::Result connect(int device, void* handle, void*& comm);
    abi::Result accept(Listener& listener, void*& comm);

    void close(Listener* listener) noexcept;
    void close(Communicator* comm) noexcept;

  private:
    using Endpoint = rdmabuf::transport::Endpoint;

    /// What a handle of NCCL's holds: the transport's, and in the connecting process which of the
    /// connections there is at work on it.
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

    /// The one that others use already, or a new one. Empty, and the reason in the log, when it
    /// cannot be opened.
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
    /// Listeners and communicators.
    std::atomic<unsigned> open_ = 0;
};

// The calls about memory.

abi::Result register_memory(const Communicator& comm, void* data, std::size_t size, int kind,
                            void*& memory);
abi::Result register_dmabuf(const Communicator& comm, void* data, std::size_t size,
                            std::uint64_t offset, int fd, void*& memory);

} // namespace nccl_net
