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

/// What tests of verbs share that run on softverbs or on the rig's device: connections of the
/// device with itself, and memory of each kind to move data between.
namespace rdmabuf::testing {

/// One side of a connection, on a protection domain of its own.
struct End {
    explicit End(const Context& context) : pd(context), cq(context) {}
    ProtectionDomain pd;
    CompletionQueue cq;
    std::optional<QueuePair> qp = std::nullopt;

    /// The next completion, successful or not.
    [[nodiscard]] WorkCompletion next() const;
    /// The next completion, which must be that of @p wr_id, and a success.
    WorkCompletion expect(std::uint64_t wr_id) const;
};

struct Loopback {
    Context context = Context::open_first();
    End a{context}, b{context};

    /// What the options are besides the completion queues.
    using Adjust = void (*)(QueuePairOptions&);
    void connect(QueuePairType type = QueuePairType::reliable_connected, Adjust adjust = nullptr);
    [[nodiscard]] PreparedQueuePair prepare(const End& end, QueuePairType type,
                                            Adjust adjust = nullptr) const;
};

/// Registered memory whose bytes a test can reach behind verbs' back. Offsets count from the begin
/// of the region.
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

/// The kinds of memory there are: "host", "dm", and the exporters' names. Each program has its own.
[[nodiscard]] std::vector<std::string> memory_kinds();

/// @param kind  of memory_kinds()
/// @param length  a multiple of 4
[[nodiscard]] std::unique_ptr<Memory> make_memory(const std::string& kind,
                                                  const ProtectionDomain& pd, std::size_t length,
                                                  Access access = full_access);

/// Bytes that differ from place to place and from seed to seed.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t length, unsigned seed);

} // namespace rdmabuf::testing
