// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/transport/options.hpp>

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

    explicit NameList(std::string_view text);

    /// @param port   -1: any port
    /// @param entry  set to the entry that matches @p name and @p port; nullptr if there is none
    [[nodiscard]] bool selects(std::string_view name, int port, const Entry*& entry) const;

  private:
    std::vector<Entry> entries_;
    bool exact_ = false;
    bool inverted_ = false;
};

/// Reads environment variables. A value that is not a number, or that is too large, is logged as a
/// warning and ignored. A negative number is the same as no value, as in NCCL.
class Environment {
  public:
    /// Returns the value of a variable; an empty string if it is not set.
    [[nodiscard]] std::string text(const char* name);
    template <class Number = std::uint8_t>
    [[nodiscard]] std::optional<Number> number(const char* name,
                                               unsigned max = std::numeric_limits<Number>::max()) {
        const std::optional<unsigned> value = unsigned_number(name, max);
        return value ? std::optional(static_cast<Number>(*value)) : std::nullopt;
    }
    [[nodiscard]] bool flag(const char* name, bool otherwise) {
        return number(name).value_or(otherwise ? 1 : 0) != 0;
    }
    /// Logs the variables of NCCL's InfiniBand network that are set and were not read.
    void report_unread() const;

  private:
    [[nodiscard]] std::optional<unsigned> unsigned_number(const char* name, unsigned max);

    std::set<std::string_view> read_;
};

/// Selects a GID of each port by NCCL_IB_GID_INDEX, NCCL_IB_ROCE_VERSION_NUM, NCCL_IB_ADDR_FAMILY
/// and NCCL_IB_ADDR_RANGE.
class GidSelection {
  public:
    explicit GidSelection(Environment& environment);
    /// Returns std::nullopt if none of the variables is set, or if no GID of the port matches.
    [[nodiscard]] std::optional<std::uint8_t> index_of(const rdmabuf::Context& context,
                                                       std::uint8_t port) const;

  private:
    [[nodiscard]] bool in_range(const rdmabuf::Gid& gid) const;

    std::optional<std::uint8_t> index_;
    /// True if another variable than NCCL_IB_GID_INDEX is set.
    bool by_properties_;
    rdmabuf::GidType type_;
    bool ipv6_;
    /// The range in the format of a GID, and its prefix length.
    std::array<std::uint8_t, 16> range_{};
    unsigned prefix_ = 0;
};

/// Returns the interface at which the plugin listens, as NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY
/// select it: its name, or its address if the family is given. Empty: Endpoint::listen() chooses
/// the interface. std::nullopt: no interface matches, or getifaddrs(3) has failed.
[[nodiscard]] std::optional<std::string> find_interface(Environment& environment);

/// The environment variables of the plugin, which the constructor reads. README.md says what they
/// mean.
struct Settings {
    Settings() { environment.report_unread(); }

    Environment environment;
    bool nccl_exports = environment.flag("RDMABUF_NCCL_DMABUF", false);
    bool disabled = environment.flag("NCCL_IB_DISABLE", false);
    NameList devices{environment.text("NCCL_IB_HCA")};
    std::optional<std::string> listen = find_interface(environment);
    bool pci_order = environment.flag("NCCL_IB_DEVICE_PCI_ORDER", true);
    bool merge_functions = environment.flag("NCCL_IB_MERGE_VFS", true);
    bool merge_devices = environment.flag("NCCL_IB_MERGE_NICS", true);
    bool data_direct = environment.flag("NCCL_IB_DATA_DIRECT", true);
    bool relaxed_ordering = environment.flag("NCCL_IB_PCI_RELAXED_ORDERING", true);
    /// NCCL permits up to 128. A value above the maximum of this library is reduced to this maximum
    /// instead of ignored, because the user wants many queue pairs.
    std::uint32_t queue_pairs = std::clamp<std::uint32_t>(
        environment.number<std::uint32_t>("NCCL_IB_QPS_PER_CONNECTION").value_or(1), 1,
        rdmabuf::transport::max_queue_pairs_per_device);
    /// These two have priority over the traffic class that NCCL passes.
    std::optional<std::uint8_t> traffic_class = environment.number("NCCL_IB_TC");
    std::optional<std::uint8_t> service_level = environment.number("NCCL_IB_SL", 15);
    GidSelection gid{environment};
    std::uint16_t pkey_index = environment.number<std::uint16_t>("NCCL_IB_PKEY").value_or(0);
    /// The default is that of NCCL's own transport, because large fabrics need a long timeout.
    std::uint8_t ack_timeout = environment.number("NCCL_IB_TIMEOUT", 31).value_or(20);
    std::uint8_t retry_count = environment.number("NCCL_IB_RETRY_CNT", 7).value_or(7);
};

} // namespace nccl_net
