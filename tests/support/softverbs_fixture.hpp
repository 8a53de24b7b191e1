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

// Devices. Each use_ function replaces all devices. It fails the test if a context of the old
// devices is open, or if a device list is not freed.

inline constexpr std::uint64_t guid = 0x0002c903000ae254;
/// Creates one device, soft0, with this GUID, one active Ethernet port, atomics, device memory and
/// dma-buf import.
void use_roce_device();
/// Creates devices with these names and the GUIDs 1, 2 and so on, like that of use_roce_device().
void use_roce_devices(std::initializer_list<const char*> names);
/// Creates one device, soft0, with one active InfiniBand port, whose LID is 17.
void use_infiniband_device();
void use_no_device();

/// Changes the attributes of a device by the function @p change.
template <class Change>
void change_device(const Change& change, unsigned device = 0) {
    ibv_device_attr_ex attributes{};
    ASSERT_EQ(softverbs_get_device_attr(device, &attributes), 0);
    change(attributes);
    ASSERT_EQ(softverbs_set_device_attr(device, &attributes), 0);
}
/// Returns the port attributes of use_roce_device(), so that a test can change them for set_port().
[[nodiscard]] ibv_port_attr roce_port();
void set_port(const ibv_port_attr& attributes, std::uint8_t port = 1, unsigned device = 0);
/// @param address  in IPv6 notation
[[nodiscard]] ibv_gid_entry gid_entry(const char* address, std::uint32_t index, ibv_gid_type type,
                                      std::uint32_t port = 1);
void set_gids(const std::vector<ibv_gid_entry>& entries, std::uint8_t port = 1);
/// Removes a feature from device 0, as if its provider did not implement it.
void remove_feature(softverbs_feature feature);
/// Makes ibv_reg_dmabuf_mr(3) fail with the errno @p before, as without support in the kernel or
/// driver, or @p attach, as with an exporter that rejects the device; 0: no failure.
void fail_dmabufs(int before, int attach = 0);

// Faults

/// Makes the n-th verbs call from now on fail once; @p n starts at 1. Calls that destroy objects
/// are not counted.
void fail_call(unsigned n, int error);
/// Makes the next call of this verb fail once.
void fail_next(const char* verb, int error);
[[nodiscard]] bool all_failed();

/// The base of tests that begin with use_roce_device(). The destructor expects that no verbs object
/// and no new descriptor is left, that no object was destroyed while in use, that all events are
/// acknowledged, that all planned faults have happened, and that no teardown failed.
class SoftverbsTest : public ::testing::Test {
  public:
    SoftverbsTest();
    ~SoftverbsTest() override;
    SoftverbsTest(const SoftverbsTest&) = delete;
    SoftverbsTest& operator=(const SoftverbsTest&) = delete;

  protected:
    /// Returns and forgets the failures of destructors, for a test that expects them.
    [[nodiscard]] std::vector<TeardownFailures::Failure> take_teardown_failures();
    /// Ignores the violations so far. For a test in which destroying an object fails, so that its
    /// parents are still in use when the program destroys them.
    void ignore_violations() { violations_ = softverbs_violations(); }

  private:
    unsigned violations_;
    std::set<int> descriptors_;
    std::optional<TeardownFailures> teardown_failures_;
};

/// The objects that most tests need.
struct Basics {
    Context context = Context::open_first();
    ProtectionDomain pd{context};
    CompletionQueue cq{context};
};

/// Connects a queue pair with itself.
[[nodiscard]] inline QueuePair connect_to_itself(PreparedQueuePair prepared) {
    const QueuePairAddress address = prepared.address();
    return std::move(prepared).connect(address);
}

/// Returns the LID and the default GID of port 1, for an address handle to the device itself.
[[nodiscard]] QueuePairAddress own_address(const Context& context);

/// Makes ibv_mr::rkey differ from lkey, so that a test detects a swap of the keys. softverbs, like
/// many devices, gives both the same value. The device does not know the new value.
inline void tell_keys_apart(ibv_mr* region) {
    region->rkey = region->lkey + 1;
}

/// Returns a memfd of @p size bytes, which softverbs accepts as a dma-buf.
[[nodiscard]] UniqueFd make_dmabuf(std::size_t size);

} // namespace rdmabuf::testing
