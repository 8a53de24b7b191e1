// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "net.hpp"

namespace nccl_net_test {

/// What NCCL transfers over one connection in one operation. Each sub-operation has its own tag and
/// its own slots in a buffer; the receives of one step of all sub-operations are one group.
struct Operation {
    enum class Protocol : std::uint8_t { ll, ll128, simple };

    /// NCCL_STEPS: the number of slots of a sub-operation.
    static constexpr std::size_t slots = 8;
    /// The maximum number of sub-operations, which is that of messages in a grouped receive.
    static constexpr std::size_t most = 8;

    Protocol protocol = Protocol::simple;
    std::size_t subs = 1;
    std::size_t length = 20;
    /// Selects the sizes and the contents of the messages.
    unsigned seed = 0;

    /// Returns the number of steps of a sub-operation: later ones have fewer.
    [[nodiscard]] std::size_t steps(std::size_t sub) const { return length - sub; }
    /// Returns the number of steps that may be in flight. All sub-operations share 16 slots
    /// (NCCL_SHARED_STEPS).
    [[nodiscard]] std::size_t depth() const { return std::min(slots, 16 / subs); }
    /// Returns the length of a slot in bytes, which is that of each receive buffer.
    [[nodiscard]] std::size_t slot() const;
    /// Returns the size of a message: full slots, shorter messages, and messages of 0 bytes.
    [[nodiscard]] std::size_t size(std::size_t sub, std::size_t step) const;
    [[nodiscard]] std::byte byte(std::size_t sub, std::size_t step, std::size_t i) const;
    /// Returns the number of messages.
    [[nodiscard]] std::size_t messages() const;
};

/// The slots of one end of a connection.
class Slots : public RegisteredBuffer {
  public:
    Slots(Net& net, void* comm, const Operation& operation, bool dmabuf)
        : RegisteredBuffer(net, comm, operation.subs * Operation::slots * operation.slot(), dmabuf),
          slot_(operation.slot()) {}

    [[nodiscard]] std::byte* at(std::size_t sub, std::size_t step) const {
        return data((sub * Operation::slots + step % Operation::slots) * slot_);
    }

  private:
    std::size_t slot_;
};

/// What the proxy thread of NCCL does for the sending end of an operation (sendProxyProgress() in
/// NCCL's src/transport/net.cc): it calls isend() again until it returns a request, and tests the
/// oldest request only.
class SendProxy {
  public:
    SendProxy(Net& net, void* comm, const Operation& operation, bool dmabuf = false)
        : net_(net), comm_(comm), operation_(operation), slots_(net, comm, operation, dmabuf) {}

    [[nodiscard]] bool done() const;
    /// @throws std::runtime_error if a call fails
    void progress();
    [[nodiscard]] Slots& slots() { return slots_; }

  private:
    struct Sub {
        /// True if the message of the next step is in its slot.
        bool ready = false;
        std::size_t transmitted = 0;
        std::size_t done = 0;
        std::array<void*, Operation::slots> requests{};
    };

    Net& net_;
    void* comm_;
    Operation operation_;
    Slots slots_;
    std::array<Sub, Operation::most> subs_;
};

/// The receiving end (recvProxyProgress()): it posts the receives of a step as one group, tests the
/// oldest group, flushes what has arrived in GPU memory, and posts a slot again when the data was
/// read. Compares every byte.
class ReceiveProxy {
  public:
    ReceiveProxy(Net& net, void* comm, const Operation& operation, bool dmabuf = false)
        : net_(net), comm_(comm), operation_(operation), slots_(net, comm, operation, dmabuf) {}

    [[nodiscard]] bool done() const { return done_ == operation_.length; }
    /// @throws std::runtime_error if a call fails, or if data is not as it was sent
    void progress();
    [[nodiscard]] Slots& slots() { return slots_; }

  private:
    /// Returns the number of sub-operations that have this step.
    [[nodiscard]] std::size_t subs(std::size_t step) const;
    void post();
    void finish_receive();
    void compare(std::size_t step) const;

    Net& net_;
    void* comm_;
    Operation operation_;
    Slots slots_;
    // The numbers of steps that are posted, that have arrived, and that were flushed and compared.
    std::size_t posted_ = 0;
    std::size_t received_ = 0;
    std::size_t done_ = 0;
    /// The receives and the flushes of the steps; nullptr if a step needs no flush.
    std::array<void*, Operation::slots> requests_{};
};

} // namespace nccl_net_test
