// SPDX-License-Identifier: BSD-3-Clause
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <rdma/rdma_netlink.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <new>

#include <rdmabuf/context.hpp>

#include "kernel_resources.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::resources {

namespace {

using Socket = std::unique_ptr<nl_sock, decltype(&nl_socket_free)>;
using Message = std::unique_ptr<nl_msg, decltype(&nlmsg_free)>;
using Use = std::function<void(const nlmsghdr& message)>;

/// The function to which libnl passes each message of an answer.
int pass_message(nl_msg* message, void* use) {
    (*static_cast<const Use*>(use))(*nlmsg_hdr(message));
    return NL_OK;
}

/// Requests a list from the kernel and calls @p use with each message of the answer.
/// @param device  the index of a device, or nullptr for a list of all devices
/// @return 0, or a negative error code of libnl
int request_list(nl_sock* socket, int command, const std::uint32_t* device, Use use) {
    const Message request(
        nlmsg_alloc_simple(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_REQUEST | NLM_F_DUMP),
        &nlmsg_free);
    if (request == nullptr) {
        throw std::bad_alloc();
    }
    if (device != nullptr) {
        if (const int error = nla_put_u32(request.get(), RDMA_NLDEV_ATTR_DEV_INDEX, *device);
            error < 0) {
            return error;
        }
    }
    nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, pass_message, &use);
    if (const int error = nl_send_auto(socket, request.get()); error < 0) {
        return error;
    }
    return nl_recvmsgs_default(socket);
}

std::string describe(int error) {
    return nl_geterror(error);
}

void read_limits(DeviceResources& device) {
    const ibv_device_attr attributes = Context::open(device.name).attributes().native.orig_attr;
    const auto set = [&device](const char* name, int value) {
        device.limits[name] = static_cast<std::uint64_t>(value);
    };
    set("pd", attributes.max_pd);
    set("cq", attributes.max_cq);
    set("qp", attributes.max_qp);
    set("mr", attributes.max_mr);
    set("srq", attributes.max_srq);
}

void add_problem(DeviceResources& device, const std::string& problem) {
    device.problem += (device.problem.empty() ? "" : "; ") + problem;
}

void read_lists(nl_sock* socket, DeviceResources& device) {
    if (const int error =
            request_list(socket, RDMA_NLDEV_CMD_RES_QP_GET, &device.index,
                         [&device](const nlmsghdr& message) { add_queue_pairs(message, device); });
        error < 0) {
        add_problem(device, "queue pairs: " + describe(error));
    }
    if (const int error =
            request_list(socket, RDMA_NLDEV_CMD_RES_MR_GET, &device.index,
                         [&device](const nlmsghdr& message) { add_regions(message, device); });
        error < 0) {
        add_problem(device, "memory regions: " + describe(error));
    }
    try {
        read_limits(device);
    } catch (const std::exception& error) {
        add_problem(device, fmt::format("limits: {}", error.what()));
    }
}

} // namespace

Report read_resources() {
    const Socket socket(nl_socket_alloc(), &nl_socket_free);
    if (socket == nullptr) {
        throw std::bad_alloc();
    }
    Report report;
    if (const int error = nl_connect(socket.get(), NETLINK_RDMA); error < 0) {
        report.reason = fmt::format(
            "this kernel has no RDMA subsystem (NETLINK_RDMA: {}): load ib_core. "
            "Devices of softverbs have no objects in the kernel",
            describe(error));
        return report;
    }
    if (const int error = request_list(
            socket.get(), RDMA_NLDEV_CMD_RES_GET, nullptr,
            [&report](const nlmsghdr& message) { add_device(message, report.devices); });
        error < 0) {
        report.reason = fmt::format("the kernel does not list RDMA resources: {}", describe(error));
        return report;
    }
    for (DeviceResources& device : report.devices) {
        read_lists(socket.get(), device);
    }
    if (report.devices.empty()) {
        report.reason = "the kernel has no RDMA device in this network namespace";
    }
    return report;
}

} // namespace rdmabuf::tools::resources
