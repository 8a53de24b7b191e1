// SPDX-License-Identifier: BSD-3-Clause
// The address at which a listener listens when the program names none.
#include "transport/listen_address.hpp"

#include <netinet/in.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmabuf::testing {
namespace {

using detail::best_address;
using detail::InterfaceAddress;

InterfaceAddress make(const char* interface, sa_family_t family = AF_INET) {
    InterfaceAddress address{.interface = interface};
    address.address.ss_family = family;
    return address;
}

/// The interface of the best address.
std::string best_of(const std::vector<InterfaceAddress>& addresses) {
    const InterfaceAddress* const best = best_address(addresses);
    return best != nullptr ? best->interface : "";
}

TEST(ListenAddress, of_no_interface_is_none) {
    EXPECT_EQ(best_address({}), nullptr);
}

TEST(ListenAddress, is_not_that_of_a_bridge_when_there_is_an_interface_with_a_device) {
    InterfaceAddress loopback = make("lo");
    loopback.is_loopback = true;
    InterfaceAddress bridge = make("docker0");
    bridge.is_bridge = true;
    InterfaceAddress device = make("ens1");
    device.has_device = true;
    EXPECT_EQ(best_of({loopback, bridge, device}), "ens1");
    EXPECT_EQ(best_of({device, bridge, loopback}), "ens1");
    EXPECT_EQ(best_of({loopback, bridge, make("eth0")}), "eth0");
    EXPECT_EQ(best_of({loopback, bridge}), "docker0");
    EXPECT_EQ(best_of({loopback}), "lo");
}

TEST(ListenAddress, is_that_of_the_default_route_even_on_a_bridge) {
    InterfaceAddress bridge = make("br0");
    bridge.is_bridge = true;
    bridge.has_default_route = true;
    InterfaceAddress device = make("ens1");
    device.has_device = true;
    EXPECT_EQ(best_of({device, bridge}), "br0");
}

TEST(ListenAddress, is_the_given_one_also_with_a_scope) {
    for (const char* const address : {"192.0.2.9", "::1", "fe80::1%lo"}) {
        EXPECT_EQ(detail::listen_address(address), address);
    }
}

TEST(ListenAddress, is_ipv4_and_then_the_first_among_equals) {
    EXPECT_EQ(best_of({make("a", AF_INET6), make("b"), make("c")}), "b");
    EXPECT_EQ(best_of({make("a", AF_INET6), make("b", AF_INET6)}), "a");
}

} // namespace
} // namespace rdmabuf::testing
