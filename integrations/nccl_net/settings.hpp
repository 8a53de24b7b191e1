// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/context.hpp>

namespace nccl_net {

/// A list of names in the syntax of NCCL_IB_HCA and NCCL_SOCKET_IFNAME: "mlx5_0:1,mlx5_2". Each
/// name selects all names that begin with it; in a list that begins with "=", it selects only
/// itself. A list that begins with "^" selects all names that the same list without "^" does not
/// select. An empty list selects all names.
class NameList {
  public:
    /// One name, optionally with a port, a rail and a plane: "mlx5_0:1:2:0". A missing number is
    /// -1.
    struct Entry {
        std::string name;
        int port = -1;
        int rail = -1;
        int plane = -1;
    };

    NameList() = default;
    explicit NameList(std::string_view text);

    /// @param port   -1: any port
    /// @param entry  set to the entry that matches @p name and @p port; nullptr if there is none
    [[nodiscard]] bool selects(std::string_view name, int port, const Entry*& entry) const;

  private:
    std::vector<Entry> entries_;
    bool exact_ = false;
    bool inverted_ = false;
};

/// The environment variables of the plugin. NCCL's own variables have the meaning that they have
/// for NCCL's InfiniBand network. A value that is not a number, or that is too large, is logged as
/// a warning and ignored. A negative number is the same as no value.
struct Settings {
    /// RDMABUF_NCCL_DMABUF=1: NCCL exports GPU memory as dma-bufs, even if this library can export
    /// it.
    bool nccl_exports = false;

    /// NCCL_IB_DISABLE=1: the plugin finds no devices.
    bool disabled = false;
    /// NCCL_IB_HCA: the devices and ports to use.
    NameList devices;
    /// The interface at which the plugin listens, as NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY
    /// select it: its name, or its address if the family is given. Empty: Endpoint::listen()
    /// chooses the interface. std::nullopt: no interface matches, or getifaddrs(3) has failed.
    std::optional<std::string> listen = std::string();
    /// NCCL_IB_DEVICE_PCI_ORDER: 0 keeps the order in which libibverbs returns the devices.
    bool pci_order = true;
    /// NCCL_IB_MERGE_VFS: 0 treats each virtual function of a card as a separate PCI device.
    bool merge_functions = true;
    /// NCCL_IB_DATA_DIRECT: 0 disables the data-direct functions of NICs.
    bool data_direct = true;
    /// NCCL_IB_PCI_RELAXED_ORDERING: 0 disables PCIe relaxed ordering.
    bool relaxed_ordering = true;
    /// NCCL_IB_MERGE_NICS: 0 disables merged devices.
    bool merge_devices = true;
    /// NCCL_IB_QPS_PER_CONNECTION: queue pairs of a connection on each device. A number above
    /// transport::max_queue_pairs_per_device is reduced to it.
    std::uint32_t queue_pairs = 1;
    /// NCCL_IB_TC: the traffic class. It has priority over the traffic class that NCCL passes for
    /// each communicator.
    std::optional<std::uint8_t> traffic_class;
    /// NCCL_IB_SL: the InfiniBand service level.
    std::optional<std::uint8_t> service_level;
    /// NCCL_IB_PKEY: an index in the partition key table of the port.
    std::uint16_t pkey_index = 0;
    /// NCCL_IB_TIMEOUT: the ACK timeout, encoded as QueuePairOptions::timeout. The default is that
    /// of NCCL's own transport, 20, because large fabrics need a long timeout.
    std::uint8_t ack_timeout = 20;
    /// NCCL_IB_RETRY_CNT: the maximum number of retransmissions.
    std::uint8_t retry_count = 7;

    [[nodiscard]] static Settings read();
    /// Returns the index of the GID to use, as NCCL_IB_GID_INDEX, NCCL_IB_ROCE_VERSION_NUM,
    /// NCCL_IB_ADDR_FAMILY and NCCL_IB_ADDR_RANGE select it; std::nullopt if none of them is set,
    /// or if no GID of the port matches.
    [[nodiscard]] std::optional<std::uint8_t> gid_index_of(const rdmabuf::Context& context,
                                                           std::uint8_t port) const;

  private:
    /// NCCL_IB_GID_INDEX.
    std::optional<std::uint8_t> gid_index_;
    /// True if NCCL_IB_ROCE_VERSION_NUM, NCCL_IB_ADDR_FAMILY or NCCL_IB_ADDR_RANGE is set.
    bool selects_gid_ = false;
    rdmabuf::GidType gid_type_ = rdmabuf::GidType::roce_v2;
    bool ipv6_gid_ = false;
    /// The range of NCCL_IB_ADDR_RANGE, in the format of a GID, and its prefix length.
    std::array<std::uint8_t, 16> gid_range_{};
    unsigned gid_prefix_ = 0;
};

} // namespace nccl_net
