// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/region.hpp>

#include "support.hpp"

/// Shared by the tests of verbs that run on softverbs or on the rig's device: loopback connections
/// of a device, and memory of each kind.
namespace rdmabuf::testing {

/// One side of a connection, on a protection domain of its own.
struct End {
    explicit End(const Context& context) : pd(context), cq(context) {}
    ProtectionDomain pd;
    CompletionQueue cq;
    std::optional<QueuePair> qp = std::nullopt;

    /// Waits for the next completion, which may be a failure.
    [[nodiscard]] WorkCompletion next() const;
    /// Waits for the next completion. Expects that it is a success of the request @p wr_id.
    WorkCompletion expect(std::uint64_t wr_id) const;
};

struct Loopback {
    Context context = Context::open_first();
    End a{context}, b{context};

    /// Changes the options of a queue pair, whose completion queues and type are set already.
    using Adjust = void (*)(QueuePairOptions&);
    void connect(QueuePairType type = QueuePairType::reliable_connected, Adjust adjust = nullptr);
    [[nodiscard]] PreparedQueuePair prepare(const End& end, QueuePairType type,
                                            Adjust adjust = nullptr) const;
};

/// Registered memory whose bytes a test can read and write without verbs. Offsets are relative to
/// the start of the region.
class Memory {
  public:
    virtual ~Memory() = default;
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] virtual const Region& region() const = 0;
    virtual void put(std::size_t offset, std::span<const std::byte> bytes) = 0;
    [[nodiscard]] virtual std::vector<std::byte> get(std::size_t offset, std::size_t length) = 0;

  protected:
    Memory() = default;
};

/// Returns the kinds to test: "host", "dm" or exporters. Each test program defines the function.
[[nodiscard]] std::vector<std::string> memory_kinds();

/// @param kind  one of memory_kinds()
/// @param length  a multiple of 4
[[nodiscard]] std::unique_ptr<Memory> make_memory(const std::string& kind,
                                                  const ProtectionDomain& pd, std::size_t length,
                                                  Access access = full_access);

} // namespace rdmabuf::testing
