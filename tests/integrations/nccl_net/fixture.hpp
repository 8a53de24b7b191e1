// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net.hpp"
#include "proxy.hpp"
#include "softverbs_fixture.hpp"

namespace nccl_net_test {

/// Sets an environment variable. The destructor removes the variable.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
};

/// Loads the plugin as NCCL does, on softverbs; afterwards nothing is left of it. A test that has
/// changed the devices, or the environment, begins with load().
class NcclNet : public rdmabuf::testing::SoftverbsTest {
  public:
    NcclNet();
    ~NcclNet() override;
    NcclNet(const NcclNet&) = delete;
    NcclNet& operator=(const NcclNet&) = delete;

  protected:
    /// Loads the plugin and calls init() of this version of the table. @return the result of init()
    Result load(int traffic_class = abi::undefined_traffic_class, int version = newest_version);
    [[nodiscard]] Net& net() { return *net_; }

    /// Returns the attributes with which queue pairs were connected to a peer.
    [[nodiscard]] static std::vector<ibv_qp_attr> connected();
    /// Returns the traffic classes of these queue pairs.
    [[nodiscard]] static std::set<int> traffic_classes();

    /// A listener and both ends of what came of it.
    struct Pair {
        void* listener = nullptr;
        void* send = nullptr;
        void* receive = nullptr;
    };
    /// Closed at the end.
    [[nodiscard]] Pair connect(int device = 0);
    /// Connects both ends to the listener of the handle.
    void meet(Pair& pair, Handle handle, int device = 0);
    // Closing before the end of the test

    void close_send(const Pair& pair);
    void close_receive(const Pair& pair);
    /// Closes the listener and both ends.
    void close(const Pair& pair);

    using Memory = RegisteredBuffer;
    [[nodiscard]] std::unique_ptr<Memory> memory(void* comm, std::size_t size,
                                                 bool dmabuf = false) {
        return std::make_unique<Memory>(net(), comm, size, dmabuf);
    }

    /// Both ends of an operation on a connection, in GPU memory or in host memory.
    struct Transfer {
        Transfer(Net& net, const Pair& pair, const Operation& operation, bool dmabuf)
            : send(net, pair.send, operation, dmabuf),
              receive(net, pair.receive, operation, dmabuf) {}
        [[nodiscard]] bool done() const { return send.done() && receive.done(); }

        SendProxy send;
        ReceiveProxy receive;
    };
    /// Performs two operations as two ranks that start together: each one sends before it can know
    /// a receive of the other.
    void run(Transfer& one, Transfer& other);
    void run(Transfer& transfer) { run(transfer, transfer); }

    /// A request of NCCL, and what its test has reported.
    struct Request {
        void* request = nullptr;
        std::vector<int> sizes;
        bool done = false;
        Result result = Result::success;
    };
    using Ticket = std::shared_ptr<Request>;

    // Each asks until there is a request.
    [[nodiscard]] Ticket send(void* comm, const Memory& memory, std::size_t offset,
                              std::size_t size, int tag);
    [[nodiscard]] Ticket receive(void* comm, const Memory& memory, std::size_t offset,
                                 std::size_t size, int tag);
    /// Several as one.
    [[nodiscard]] Ticket receive(void* comm, const std::vector<void*>& data,
                                 const std::vector<std::size_t>& sizes,
                                 const std::vector<int>& tags, const std::vector<void*>& memories);
    /// A request that the plugin has given. From now on it is tested with all others.
    [[nodiscard]] Ticket follow(void* request, std::size_t count = 1);

    /// Tests every request once, the last one first.
    void go_on();
    /// Goes on until it is done, well or not. @return its sizes
    std::vector<int> finish(const Ticket& ticket);
    /// Goes on until @p done says so; fails the test after a while.
    void until(const std::function<bool()>& done);

  private:
    /// Returns the element of `pairs_` with the same listener.
    [[nodiscard]] Pair& find(const Pair& pair);

    std::unique_ptr<LoadedPlugin> plugin_;
    std::unique_ptr<Net> net_;
    std::vector<Pair> pairs_;
    std::vector<Ticket> requests_;
};

/// The path of the plugin: CMake says it.
inline constexpr const char* plugin_path = NCCL_NET_PLUGIN_PATH;

} // namespace nccl_net_test
