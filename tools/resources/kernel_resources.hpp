// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "../text.hpp"

struct nlmsghdr;

namespace rdmabuf::tools::resources {

/// A queue pair, as the kernel reports it by RDMA_NLDEV_CMD_RES_QP_GET.
struct QueuePairInfo {
    std::uint32_t number = 0;
    /// The queue pair number of the peer; 0 if the queue pair is not connected.
    std::uint32_t remote = 0;
    std::uint32_t port = 0;
    std::string type;
    std::string state;
    /// The process that owns the object; 0 if the kernel owns it.
    std::uint32_t pid = 0;
    /// The name of the process or of the kernel module that owns the object; may be empty.
    std::string owner;
};

/// A memory region, as the kernel reports it by RDMA_NLDEV_CMD_RES_MR_GET.
struct RegionInfo {
    std::uint32_t number = 0;
    /// The length in bytes.
    std::uint64_t length = 0;
    std::uint32_t pid = 0;
    std::string owner;
};

struct DeviceResources {
    /// The device index (RDMA_NLDEV_ATTR_DEV_INDEX), which selects the device in other requests.
    std::uint32_t index = 0;
    std::string name;
    /// The object counts by type: "pd", "cq", "qp", "cm_id", "mr", "ctx", "srq".
    std::map<std::string, std::uint64_t> counts = {};
    /// The limits that the device reports for the same types. Types without a known limit are
    /// missing.
    std::map<std::string, std::uint64_t> limits = {};
    std::vector<QueuePairInfo> queue_pairs = {};
    std::vector<RegionInfo> regions = {};
    /// The reasons why the queue pairs, the regions or the limits could not be read; empty if
    /// everything was read.
    std::string problem = {};
};

/// The result of `rdmabuf resources`.
struct Report {
    std::vector<DeviceResources> devices = {};
    /// The reason why `devices` is empty or incomplete; otherwise empty.
    std::string reason = {};
};

/// Queries the kernel by NETLINK_RDMA, and the limits of each device by verbs. Errors of these
/// queries are stored in the result.
[[nodiscard]] Report read_resources();

// The functions below add the contents of one message of the kernel to the result. Unknown and
// malformed attributes are ignored.
void add_device(const nlmsghdr& message, std::vector<DeviceResources>& devices);
void add_queue_pairs(const nlmsghdr& message, DeviceResources& device);
void add_regions(const nlmsghdr& message, DeviceResources& device);

[[nodiscard]] std::string to_text(const Report& report, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const Report& report);

} // namespace rdmabuf::tools::resources
