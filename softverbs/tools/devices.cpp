// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "subcommands.hpp"

namespace softverbs::tools {

namespace {

std::string text_of(const ibv_gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    return text;
}

void print(ibv_device& device) {
    const std::unique_ptr<ibv_context, int (*)(ibv_context*)> context(ibv_open_device(&device),
                                                                      ibv_close_device);
    ibv_device_attr attributes{};
    if (context == nullptr || ibv_query_device(context.get(), &attributes) != 0) {
        std::printf("%-10s cannot be opened: %s\n", device.name, std::strerror(errno));
        return;
    }
    for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
        const auto port = static_cast<std::uint8_t>(number);
        ibv_port_attr status{};
        ibv_gid gid{};
        if (ibv_query_port(context.get(), port, &status) != 0) {
            continue;
        }
        static_cast<void>(ibv_query_gid(context.get(), port, 0, &gid));
        std::printf("%-10s %4u  %-12s %-10s %04x:%-6u %s\n", device.name, number,
                    status.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
                    status.state == IBV_PORT_ACTIVE ? "active" : "down", attributes.vendor_id,
                    attributes.vendor_part_id, text_of(gid).c_str());
    }
}

} // namespace

int list_devices() {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    if (list == nullptr) {
        std::fprintf(stderr, "softverbs: cannot list devices: %s\n", std::strerror(errno));
        return 1;
    }
    std::printf("%-10s %4s  %-12s %-10s %-11s %s\n", "device", "port", "link layer", "state",
                "vendor:part", "GID 0");
    for (int i = 0; i < count; ++i) {
        print(*list[i]);
    }
    ibv_free_device_list(list);
    return 0;
}

} // namespace softverbs::tools
