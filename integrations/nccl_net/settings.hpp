// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nccl_net {

/// The environment variables of the plugin. Where NCCL's own InfiniBand network has a variable for
/// the same purpose, the plugin uses that variable. A value that is not a number, or that is out of
/// range, is logged as a warning and ignored.
struct Settings {
    /// RDMABUF_NCCL_DEVICES: the names of the devices to use, separated by commas; empty for all.
    std::string devices;
    /// RDMABUF_NCCL_LISTEN: the IP address or the interface at which the plugin listens; if it is
    /// empty, Endpoint::listen() chooses the interface.
    std::string listen;
    /// RDMABUF_NCCL_DMABUF=1: NCCL exports GPU memory as dma-bufs, even if this library can export
    /// it.
    bool nccl_exports = false;

    /// NCCL_IB_PCI_RELAXED_ORDERING: 0 disables PCIe relaxed ordering.
    bool relaxed_ordering = true;
    /// NCCL_IB_MERGE_NICS: 0 disables merged devices.
    bool merge_devices = true;
    /// NCCL_IB_TC: the traffic class. It has priority over the traffic class that NCCL passes for
    /// each communicator.
    std::optional<std::uint8_t> traffic_class;
    /// NCCL_IB_SL: the InfiniBand service level.
    std::optional<std::uint8_t> service_level;
    /// NCCL_IB_GID_INDEX: an index in the GID table of the port.
    std::optional<std::uint8_t> gid_index;
    /// NCCL_IB_PKEY: an index in the partition key table of the port.
    std::uint16_t pkey_index = 0;
    /// NCCL_IB_TIMEOUT: the ACK timeout, encoded as QueuePairOptions::timeout. The default is that
    /// of NCCL's own transport, 20, because large fabrics need a long timeout.
    std::uint8_t ack_timeout = 20;
    /// NCCL_IB_RETRY_CNT: the maximum number of retransmissions.
    std::uint8_t retry_count = 7;

    /// Reads the environment.
    [[nodiscard]] static Settings read();
    /// Returns true if `devices` is empty or contains @p name.
    [[nodiscard]] bool uses_device(const std::string& name) const;
};

} // namespace nccl_net
