// SPDX-License-Identifier: BSD-3-Clause
//
// Lists the RDMA devices of this machine with their ports, addresses and capabilities. The program
// needs no privilege except access to the device files.
#include <cstdio>

#include <rdmabuf/rdmabuf.hpp>

namespace {

// Prints a port and its GID table. The table contains the addresses that the port can send from. On
// RoCE each IP address of the network interface has one GID for each RoCE version.
void print_port(const rdmabuf::Context& context, std::uint8_t number) {
    const ibv_port_attr port = context.port(number);
    std::printf("  port %u: %s, MTU %d\n", unsigned{number}, ibv_port_state_str(port.state),
                128 << port.active_mtu);
    const auto gids = context.gid_table(number);
    if (gids.empty()) {
        std::printf("    no GID: give the network interface an IP address\n");
        return;
    }
    const rdmabuf::GidEntry best = context.best_gid(number);
    for (const rdmabuf::GidEntry& entry : gids) {
        std::printf("    GID %-3u %-24s %s%s\n", unsigned{entry.index},
                    to_string(entry.gid).c_str(), to_string(entry.type),
                    entry.index == best.index ? "  <- the best GID" : "");
    }
}

void print_device(const rdmabuf::Device& device) {
    const std::string driver = device.driver();
    std::printf("%s (%s), GUID %s\n", device.name().c_str(),
                driver.empty() ? "a software device" : driver.c_str(),
                rdmabuf::guid_to_string(device.guid()).c_str());

    const rdmabuf::Context context(device);
    const rdmabuf::DeviceAttributes attributes = context.attributes();
    // Prints "yes", or "no" with the reason why the device cannot import dma-bufs and with a
    // remedy.
    std::printf("  dma-bufs:      %s\n", to_string(context.dmabuf_import()).c_str());
    std::printf("  device memory: %llu bytes\n",
                static_cast<unsigned long long>(attributes.max_dm_size()));
    std::printf("  atomics:       %s\n", attributes.atomics() ? "yes" : "no");
    std::printf("  SRD:           %s\n", to_string(context.srd()).c_str());
    for (unsigned port = 1; port <= attributes.port_count(); ++port) {
        print_port(context, static_cast<std::uint8_t>(port));
    }
}

} // namespace

int main() try {
    const rdmabuf::DeviceList devices;
    if (devices.empty()) {
        std::fprintf(stderr, "There is no RDMA device on this machine.\n");
        return 1;
    }
    for (const rdmabuf::Device& device : devices) {
        print_device(device);
    }
    return 0;
} catch (const rdmabuf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
