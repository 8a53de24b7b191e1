// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <softverbs/softverbs.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/context.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/queue_pair.hpp>
#include <rdmabuf/unique_fd.hpp>

#include "fails_with.hpp"
#include "recorder/verbs_recorder.hpp"
#include "support.hpp"

namespace rdmabuf::testing {

// Devices. Each function that says what there is begins anew, and fails the test when something of
// what was there before is alive.

inline constexpr std::uint64_t guid = 0x0002c903000ae254;
/// One device, soft0, with that GUID and one active Ethernet port, atomics, device memory and
/// dma-buf import.
void use_roce_device();
/// Such devices with other names; their GUIDs count from 1.
void use_roce_devices(std::initializer_list<const char*> names);
/// soft0 with one active InfiniBand port, at LID 17.
void use_infiniband_device();
void use_no_device();

/// Changes what a device says of itself.
template <class Change>
void change_device(const Change& change, unsigned device = 0) {
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(softverbs_get_device_attr(device, &attributes), 0);
    change(attributes);
    ASSERT_EQ(softverbs_set_device_attr(device, &attributes), 0);
}
/// What soft0 and its like say of their ports, for a test to change.
[[nodiscard]] ibv_port_attr roce_port();
void set_port(const ibv_port_attr& attributes, std::uint8_t port = 1, unsigned device = 0);
/// @param address  in IPv6 notation
[[nodiscard]] ibv_gid_entry gid_entry(const char* address, std::uint32_t index, ibv_gid_type type,
                                      std::uint32_t port = 1);
void set_gids(const std::vector<ibv_gid_entry>& entries, std::uint8_t port = 1);
/// Takes an entry point away from the device.
void remove_feature(softverbs_feature feature);
/// What registering a dma-buf fails with: before the descriptor is looked at, as drivers and
/// kernels without it do, or after, as exporters do.
void fail_dmabufs(int before, int attach = 0);

// Failing

/// The n-th call from now on that makes, changes or asks for something fails, once.
void fail_call(unsigned n, int error);
/// The next call of this verb fails, once.
void fail_next(const char* verb, int error);
[[nodiscard]] bool all_failed();

/// For tests on softverbs, which begin with one RoCE device. Whatever a test does, afterwards
/// nothing is alive or open that was not before, nothing was destroyed while in use or twice, every
/// event is acknowledged, every failure planned has happened, and no destructor failed.
class SoftverbsTest : public ::testing::Test {
  public:
    SoftverbsTest();
    ~SoftverbsTest() override;
    SoftverbsTest(const SoftverbsTest&) = delete;
    SoftverbsTest& operator=(const SoftverbsTest&) = delete;

  protected:
    /// What destructors reported, for a test that expects it.
    [[nodiscard]] std::vector<TeardownFailures::Failure> take_teardown_failures();
    /// Ignores the violations so far, in a test in which an object cannot be destroyed, so that the
    /// objects that it uses are in use when they are to be destroyed.
    void ignore_violations() { violations_ = softverbs_violations(); }

  private:
    unsigned violations_;
    std::set<int> descriptors_;
    std::optional<TeardownFailures> teardown_failures_;
};

/// What most tests need before they begin.
struct Basics {
    Context context = Context::open_first();
    ProtectionDomain pd{context};
    CompletionQueue cq{context};
};

/// A queue pair that is its own peer.
[[nodiscard]] inline QueuePair connect_to_itself(PreparedQueuePair prepared) {
    const QueuePairAddress address = prepared.address();
    return std::move(prepared).connect(address);
}

/// Where a device itself is, at the GID that a queue pair takes by default.
[[nodiscard]] QueuePairAddress own_address(const Context& context);

/// Gives @p region, in its public fields only, an rkey that is not its lkey: softverbs gives both
/// the same, as many devices do, and others do not.
inline void tell_keys_apart(ibv_mr* region) {
    region->rkey = region->lkey + 1;
}

/// What softverbs takes for a dma-buf: a memfd of @p size bytes.
[[nodiscard]] UniqueFd make_dmabuf(std::size_t size);

} // namespace rdmabuf::testing
