// SPDX-License-Identifier: BSD-3-Clause
//
// Parses the messages of NETLINK_RDMA. The attributes are those of <rdma/rdma_netlink.h>.
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <rdma/rdma_netlink.h>

#include <array>
#include <fstream>

#include "kernel_resources.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::resources {

namespace {

/// The attributes of one level of a message, by their types.
class Attributes {
  public:
    explicit Attributes(const nlmsghdr& message) {
        // The parser takes a pointer that is not const, and does not change the message.
        nlmsg_parse(const_cast<nlmsghdr*>(&message), 0, table_.data(), RDMA_NLDEV_ATTR_MAX - 1,
                    nullptr);
    }
    explicit Attributes(nlattr* nested) {
        nla_parse_nested(table_.data(), RDMA_NLDEV_ATTR_MAX - 1, nested, nullptr);
    }

    [[nodiscard]] nlattr* find(int type) const { return table_[static_cast<std::size_t>(type)]; }
    [[nodiscard]] std::uint64_t number(int type) const {
        const nlattr* const attribute = find(type);
        if (attribute == nullptr) {
            return 0;
        }
        switch (nla_len(attribute)) {
            case sizeof(std::uint8_t):
                return nla_get_u8(attribute);
            case sizeof(std::uint32_t):
                return nla_get_u32(attribute);
            case sizeof(std::uint64_t):
                return nla_get_u64(attribute);
            default:
                return 0;
        }
    }
    [[nodiscard]] std::uint32_t number32(int type) const {
        return static_cast<std::uint32_t>(number(type));
    }
    [[nodiscard]] std::string text(int type) const {
        const nlattr* const attribute = find(type);
        if (attribute == nullptr) {
            return {};
        }
        const std::string bytes(static_cast<const char*>(nla_data(attribute)),
                                static_cast<std::size_t>(nla_len(attribute)));
        return bytes.substr(0, bytes.find('\0'));
    }

  private:
    std::array<nlattr*, RDMA_NLDEV_ATTR_MAX> table_{};
};

/// Calls @p use with the attributes of each entry in the list of type @p list.
template <class Use>
void for_each_entry(const Attributes& attributes, int list, const Use& use) {
    nlattr* const nested = attributes.find(list);
    if (nested == nullptr) {
        return;
    }
    int remaining = nla_len(nested);
    for (auto* entry = static_cast<nlattr*>(nla_data(nested)); nla_ok(entry, remaining) != 0;
         entry = nla_next(entry, &remaining)) {
        use(Attributes(entry));
    }
}

/// Returns the name of an ib_qp_type of the kernel.
std::string type_name(std::uint64_t type) {
    switch (type) {
        case 0:
            return "SMI";
        case 1:
            return "GSI";
        case 2:
            return "RC";
        case 3:
            return "UC";
        case 4:
            return "UD";
        case 8:
            return "RAW_PACKET";
        case 9:
            return "XRC_INI";
        case 10:
            return "XRC_TGT";
        case 0xff:
            return "DRIVER";
        default:
            return fmt::format("type {}", type);
    }
}

/// Returns the name of an ib_qp_state of the kernel.
std::string state_name(std::uint64_t state) {
    constexpr std::array names{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return state < names.size() ? names[state] : fmt::format("state {}", state);
}

/// Returns the name of the kernel module or of the process that owns an object.
std::string owner_name(const Attributes& entry) {
    std::string name = entry.text(RDMA_NLDEV_ATTR_RES_KERN_NAME);
    if (const std::uint32_t pid = entry.number32(RDMA_NLDEV_ATTR_RES_PID);
        name.empty() && pid != 0) {
        std::ifstream file(fmt::format("/proc/{}/comm", pid));
        std::getline(file, name);
    }
    return name;
}

} // namespace

void add_device(const nlmsghdr& message, std::vector<DeviceResources>& devices) {
    const Attributes attributes(message);
    DeviceResources device{.index = attributes.number32(RDMA_NLDEV_ATTR_DEV_INDEX),
                           .name = attributes.text(RDMA_NLDEV_ATTR_DEV_NAME)};
    if (device.name.empty()) {
        return;
    }
    for_each_entry(attributes, RDMA_NLDEV_ATTR_RES_SUMMARY, [&device](const Attributes& entry) {
        device.counts[entry.text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME)] =
            entry.number(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR);
    });
    devices.push_back(std::move(device));
}

void add_queue_pairs(const nlmsghdr& message, DeviceResources& device) {
    for_each_entry(Attributes(message), RDMA_NLDEV_ATTR_RES_QP, [&device](const Attributes& entry) {
        device.queue_pairs.push_back({.number = entry.number32(RDMA_NLDEV_ATTR_RES_LQPN),
                                      .remote = entry.number32(RDMA_NLDEV_ATTR_RES_RQPN),
                                      .port = entry.number32(RDMA_NLDEV_ATTR_PORT_INDEX),
                                      .type = type_name(entry.number(RDMA_NLDEV_ATTR_RES_TYPE)),
                                      .state = state_name(entry.number(RDMA_NLDEV_ATTR_RES_STATE)),
                                      .pid = entry.number32(RDMA_NLDEV_ATTR_RES_PID),
                                      .owner = owner_name(entry)});
    });
}

void add_regions(const nlmsghdr& message, DeviceResources& device) {
    for_each_entry(Attributes(message), RDMA_NLDEV_ATTR_RES_MR, [&device](const Attributes& entry) {
        device.regions.push_back({.number = entry.number32(RDMA_NLDEV_ATTR_RES_MRN),
                                  .length = entry.number(RDMA_NLDEV_ATTR_RES_MRLEN),
                                  .pid = entry.number32(RDMA_NLDEV_ATTR_RES_PID),
                                  .owner = owner_name(entry)});
    });
}

} // namespace rdmabuf::tools::resources
