// SPDX-License-Identifier: BSD-3-Clause
#include <endian.h>
#include <errno.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include "abi/paths.hpp"
#include "control/settings.hpp"
#include "objects/efa.hpp"
#include "objects/qp_table.hpp"
#include "objects/queue_pair.hpp"
#include "objects/tag_matching.hpp"

namespace softverbs {

namespace {

constexpr std::uint64_t first_guid = 0x5076'65ff'fe00'0001; // an EUI-64 with the OUI in vendor_id
/// The OUI in the node GUIDs: the first three bytes of first_guid. No vendor of RDMA devices uses
/// this OUI.
constexpr std::uint32_t vendor_id = 0x507665;
constexpr int max_depth = 16384;

ibv_device_attr_ex default_attributes(unsigned index) {
    ibv_device_attr_ex attributes{};
    ibv_device_attr& basic = attributes.orig_attr;
    std::snprintf(basic.fw_ver, sizeof basic.fw_ver, "1.0.0");
    basic.node_guid = basic.sys_image_guid = htobe64(first_guid + index);
    basic.max_mr_size = std::uint64_t{1} << 47; // size of the user address space
    basic.page_size_cap = ~std::uint64_t{0xfff};
    basic.vendor_id = vendor_id;
    basic.vendor_part_id = 1;
    basic.hw_ver = 1;
    basic.max_qp = max_queue_pairs;
    basic.max_qp_wr = max_depth;
    basic.device_cap_flags =
        IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_SHUTDOWN_PORT |
        IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
        IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS |
        IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    basic.max_sge = basic.max_sge_rd = static_cast<int>(max_sge);
    basic.max_cq = 65536;
    basic.max_cqe = 1 << 22;
    basic.max_mr = 1 << 20;
    basic.max_pd = 65536;
    basic.max_qp_rd_atom = basic.max_qp_init_rd_atom = 16;
    basic.max_res_rd_atom = basic.max_qp * basic.max_qp_rd_atom;
    basic.atomic_cap = IBV_ATOMIC_GLOB;
    basic.max_mw = 1 << 20;
    basic.max_ah = 1 << 20;
    basic.max_srq = 65536;
    basic.max_srq_wr = max_depth;
    basic.max_srq_sge = static_cast<int>(max_sge);
    basic.max_mcast_grp = 8192;
    basic.max_mcast_qp_attach = 256;
    basic.max_total_mcast_qp_attach = basic.max_mcast_grp * basic.max_mcast_qp_attach;
    basic.max_pkeys = 1;
    basic.local_ca_ack_delay = 15;
    basic.phys_port_cnt = 1;

    constexpr std::uint32_t reliable = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
                                       IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
                                       IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
    constexpr std::uint32_t unreliable =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
    constexpr std::uint32_t datagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
    attributes.odp_caps = {IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT,
                           {reliable, unreliable, datagram}};
    attributes.xrc_odp_caps = reliable;
    attributes.tm_caps = {.max_rndv_hdr_size = max_rendezvous_header,
                          .max_num_tags = max_tags,
                          .flags = IBV_TM_CAP_RC,
                          .max_ops = max_tag_operations,
                          .max_sge = max_tag_sge};
    attributes.completion_timestamp_mask = std::numeric_limits<std::uint64_t>::max();
    attributes.hca_core_clock = 1'000'000; // kHz: one tick per nanosecond
    attributes.device_cap_flags_ex = basic.device_cap_flags;
    attributes.max_dm_size = std::uint64_t{8} << 20;
    attributes.phys_port_cnt_ex = 1;
    attributes.packet_pacing_caps = {1, 100'000'000,
                                     1U << IBV_QPT_RC | 1U << IBV_QPT_UC | 1U << IBV_QPT_UD};
    // The limits of the mlx5 driver for completion moderation: 16 bits for the number of
    // completions, and 12 bits for the period in microseconds.
    attributes.cq_mod_caps = {0xffff, 0xfff};
    return attributes;
}

ibv_gid_entry make_gid(const fabric::HostAddress& address, std::uint32_t index,
                       std::uint32_t type) {
    ibv_gid_entry entry{};
    std::memcpy(&entry.gid, address.bytes.data(), sizeof entry.gid);
    entry.gid_index = index;
    entry.port_num = 1;
    entry.gid_type = type;
    return entry;
}

/// Computes a node GUID from the last 8 of the 16 bytes of the host address (an IPv4-mapped address
/// for IPv4). Therefore hosts with different IPv4 addresses, or with different addresses in one
/// IPv6 subnet, have different GUIDs.
__be64 guid_of(const fabric::HostAddress& address) {
    __be64 guid = 0;
    std::memcpy(&guid, address.bytes.data() + address.bytes.size() - sizeof guid, sizeof guid);
    // Combine the upper 4 bytes with those of first_guid. Otherwise, the GUID for an IPv4 address
    // would begin with zeros.
    return guid ^ htobe64(first_guid & ~std::uint64_t{0xffff'ffff});
}

Port make_port(unsigned index, __be64 guid, bool ethernet) {
    Port port;
    ibv_port_attr& attributes = port.attributes;
    ibv_gid_entry link_local = make_gid(*fabric::parse_host_address("fe80::"), 0,
                                        ethernet ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_IB);
    link_local.gid.global.interface_id = guid;
    port.gids.push_back(link_local);
    if (ethernet) {
        link_local.gid_index = 1;
        link_local.gid_type = IBV_GID_TYPE_ROCE_V2;
        port.gids.push_back(link_local);
        // The range 192.0.2.0/24 is reserved for documentation, so these addresses are unlikely to
        // exist in a real network.
        const auto address = *fabric::parse_host_address("192.0.2." + std::to_string(10 + index));
        port.gids.push_back(make_gid(address, 2, IBV_GID_TYPE_ROCE_V1));
        port.gids.push_back(make_gid(address, 3, IBV_GID_TYPE_ROCE_V2));
    }
    attributes.state = IBV_PORT_ACTIVE;
    attributes.max_mtu = attributes.active_mtu = IBV_MTU_4096;
    attributes.gid_tbl_len = 16;
    attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_SYS_IMAGE_GUID_SUP;
    attributes.max_msg_sz = 1U << 31;
    attributes.pkey_tbl_len = 1;
    attributes.lid = static_cast<std::uint16_t>(ethernet ? 0 : 1 + index);
    attributes.sm_lid = static_cast<std::uint16_t>(ethernet ? 0 : 1);
    attributes.max_vl_num = 1;
    attributes.active_width = 2; // code of a 4x link
    attributes.active_speed = 32;
    attributes.phys_state = 5; // code of LinkUp
    attributes.link_layer = ethernet ? IBV_LINK_LAYER_ETHERNET : IBV_LINK_LAYER_INFINIBAND;
    return port;
}

void without(Device& device, unsigned features) {
    device.features &= ~features;
    if ((features & SOFTVERBS_FEATURE_DM) != 0) {
        device.attributes.max_dm_size = 0;
    }
}

void without_xrc(Device& device) {
    device.attributes.orig_attr.device_cap_flags &= ~unsigned{IBV_DEVICE_XRC};
    device.attributes.device_cap_flags_ex &= ~std::uint64_t{IBV_DEVICE_XRC};
    device.attributes.xrc_odp_caps = 0;
}

void without_on_demand(Device& device) {
    device.attributes.odp_caps = {};
}

void without_tag_matching(Device& device) {
    device.attributes.tm_caps = {};
}

void without_multicast(Device& device) {
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.max_mcast_grp = basic.max_mcast_qp_attach = basic.max_total_mcast_qp_attach = 0;
}

void set_capabilities(Device& device, unsigned flags) {
    device.attributes.orig_attr.device_cap_flags = flags;
    device.attributes.device_cap_flags_ex = flags;
}

/// Sets the maximum numbers of RDMA reads and atomic operations that a queue pair can have in
/// flight, as responder and as requester.
void set_read_limits(Device& device, int responder, int requester) {
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.max_qp_rd_atom = responder;
    basic.max_qp_init_rd_atom = requester;
    basic.max_res_rd_atom = basic.max_qp * responder;
}

// One function for each device profile, which changes the default attributes of a device. The
// profiles mlx5, efa, bnxt, irdma and rxe imitate the Linux drivers of these names (bnxt_re for
// bnxt) and their providers in rdma-core.

void as_default(Device& device) {
    static_cast<void>(device);
}
void as_mlx5(Device& device) {
    device.rules.dm_granule = 4096; // an allocation of device memory (MEMIC) uses whole pages
    device.attributes.max_dm_size = 128 << 10;
    // The mlx5 driver supports rate limits only for raw packet queue pairs.
    device.attributes.packet_pacing_caps.supported_qpts = 1U << IBV_QPT_RAW_PACKET;
    device.rules.atomic_write = false;
    // The atomic operations of one NIC are atomic with respect to each other, but not with respect
    // to atomic operations of another NIC or of the CPU.
    device.attributes.orig_attr.atomic_cap = IBV_ATOMIC_HCA;
    // The maximum message size of ConnectX NICs is 1 GiB (log_max_msg is 30).
    device.ports[0].attributes.max_msg_sz = 1U << 30U;
    device.rules.is_mlx5 = true;
    device.attributes.orig_attr.device_cap_flags &= ~unsigned{IBV_DEVICE_SRQ_RESIZE};
    device.attributes.device_cap_flags_ex &= ~std::uint64_t{IBV_DEVICE_SRQ_RESIZE};
    // The vendor ID and part ID of a ConnectX-5. Some programs select features by these IDs.
    device.attributes.orig_attr.vendor_id = 0x02c9;
    device.attributes.orig_attr.vendor_part_id = 4119;
}
/// Sets the attributes of a port as efa_query_port() in the kernel does. The port keeps only its
/// first GID, because a port of an EFA device has one GID.
void as_efa_port(Port& port) {
    ibv_port_attr& attributes = port.attributes;
    attributes.link_layer = IBV_LINK_LAYER_UNSPECIFIED;
    attributes.lid = attributes.sm_lid = 0;
    attributes.lmc = 1;
    attributes.gid_tbl_len = 1;
    attributes.port_cap_flags = 0;
    attributes.max_msg_sz = efa::mtu;
    port.gids.resize(1);
    port.gids.front().gid_type = IBV_GID_TYPE_IB;
}
/// Imitates an EFA device. The limits are those of efa_query_device() in the kernel driver, and
/// those of the device; see objects/efa.hpp.
void as_efa(Device& device) {
    without_tag_matching(device);
    without_on_demand(device); // EFA pins registered memory
    without_multicast(device);
    without(device, SOFTVERBS_FEATURE_DM | SOFTVERBS_FEATURE_MW);
    set_capabilities(device, 0);
    set_read_limits(device, 0, 0);
    device.node_type = IBV_NODE_UNSPECIFIED;
    device.transport_type = IBV_TRANSPORT_UNSPECIFIED;
    device.attributes.xrc_odp_caps = 0;
    device.attributes.packet_pacing_caps = {};
    device.attributes.cq_mod_caps = {};
    device.attributes.completion_timestamp_mask = 0;
    device.attributes.hca_core_clock = 0;
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.atomic_cap = IBV_ATOMIC_NONE;
    basic.max_mw = 0;
    basic.max_srq = basic.max_srq_wr = basic.max_srq_sge = 0;
    basic.local_ca_ack_delay = 0;
    basic.max_qp = max_short_queue_pairs;
    basic.max_qp_wr = static_cast<int>(efa::max_send_requests);
    basic.max_sge = efa::max_send_sge;
    basic.max_sge_rd = efa::max_rdma_sge;
    basic.max_cq = 512;
    basic.max_cqe = 32768;
    basic.max_mr = 262'144;
    basic.max_pd = 256;
    basic.max_ah = 8192;
    basic.vendor_id = 0x1d0f;
    basic.vendor_part_id = basic.hw_ver = 0xefa1;
    for (Port& port : device.ports) {
        as_efa_port(port);
    }
    device.rules.is_efa = true;
    device.rules.atomic_write = false;
    device.rules.dmabuf_refused_access = IBV_ACCESS_REMOTE_ATOMIC;
    device.rules.max_inline = efa::max_inline;
    // libefa does not create RC and UC queue pairs. It creates UD queue pairs, and has its own
    // functions to create SRD queue pairs.
    device.rules.refused_qp_types = 1U << unsigned{IBV_QPT_RC} | 1U << unsigned{IBV_QPT_UC};
}
/// Imitates a Broadcom NetXtreme-E NIC of generation P5 (BCM57508). The limits are those of
/// bnxt_re_query_device() and bnxt_qplib_get_dev_attr() in the kernel driver. libbnxt_re supports
/// no memory windows and no extended completion queues, and does not create UC queue pairs
/// (bnxt_re_check_qp_limits()).
void as_bnxt(Device& device) {
    without_tag_matching(device);
    without_on_demand(device);
    without_xrc(device);
    without_multicast(device);
    without(device, SOFTVERBS_FEATURE_DM | SOFTVERBS_FEATURE_MW | SOFTVERBS_FEATURE_CREATE_CQ_EX);
    set_capabilities(device, IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN |
                                 IBV_DEVICE_SHUTDOWN_PORT | IBV_DEVICE_SYS_IMAGE_GUID |
                                 IBV_DEVICE_RESIZE_MAX_WR | IBV_DEVICE_PORT_ACTIVE_EVENT |
                                 IBV_DEVICE_N_NOTIFY_CQ | IBV_DEVICE_MEM_WINDOW |
                                 IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS);
    set_read_limits(device, 126, 126);
    device.attributes.packet_pacing_caps = {};
    device.attributes.cq_mod_caps = {};
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.max_sge = basic.max_sge_rd = basic.max_srq_sge = 6;
    basic.max_mr_size = std::uint64_t{1} << 39U;
    basic.max_cqe = 0xfffff;
    basic.vendor_id = 0x14e4;
    basic.vendor_part_id = 0x1750;
    device.ports[0].attributes.max_msg_sz = 1U << 30U;
    device.rules.atomic_write = false;
    device.rules.max_inline = 96; // BNXT_RE_MAX_INLINE_SIZE
    device.rules.refused_qp_types = 1U << unsigned{IBV_QPT_UC};
    device.rules.refused_qp_type_error = EINVAL;
}
/// Imitates an Intel E810 NIC (generation 2). The limits are those of irdma_query_device() and
/// irdma_sc_dev_init() in the kernel driver. This generation does not support shared receive queues
/// or atomic operations. libirdma creates only RC and UD queue pairs, and does not support the
/// ibv_wr_*() functions.
void as_irdma(Device& device) {
    constexpr int quanta = 32768;
    constexpr int reserved_quanta = 258;
    constexpr int quanta_per_request = 8;
    without_tag_matching(device);
    without_on_demand(device);
    without_xrc(device);
    without(device, SOFTVERBS_FEATURE_DM | SOFTVERBS_FEATURE_CREATE_QP_EX);
    set_capabilities(
        device, IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_RC_RNR_NAK_GEN);
    set_read_limits(device, 127, 255);
    device.attributes.packet_pacing_caps = {};
    device.attributes.cq_mod_caps = {};
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.atomic_cap = IBV_ATOMIC_NONE;
    basic.max_srq = basic.max_srq_wr = basic.max_srq_sge = 0;
    basic.max_sge = basic.max_sge_rd = 13;
    basic.max_qp_wr = (quanta - reserved_quanta) / quanta_per_request;
    basic.max_cqe = 1'048'574;
    basic.vendor_id = 0x8086;
    basic.vendor_part_id = 0x1592;
    device.ports[0].attributes.max_msg_sz = 0x7fffffff;
    device.rules.atomic_write = false;
    device.rules.max_inline = 101; // IRDMA_MAX_INLINE_DATA_SIZE
    device.rules.refused_qp_types = 1U << unsigned{IBV_QPT_UC};
}
/// Imitates the software device of the rxe kernel driver. The limits are those of rxe_param.h in
/// this driver.
void as_rxe(Device& device) {
    without_tag_matching(device);
    set_read_limits(device, 128, 128);
    ibv_device_attr& basic = device.attributes.orig_attr;
    basic.max_cqe = 32767;
    basic.max_mcast_qp_attach = 56;
    basic.max_total_mcast_qp_attach = basic.max_mcast_grp * basic.max_mcast_qp_attach;
    device.rules.max_inline = 512; // the size of RXE_MAX_SGE scatter/gather entries
    without_xrc(device);
    device.attributes.packet_pacing_caps = {};
    device.attributes.cq_mod_caps = {};
    // The rxe driver does not support implicit on-demand paging (rxe_odp.c).
    device.attributes.odp_caps.general_caps &= ~std::uint64_t{IBV_ODP_SUPPORT_IMPLICIT};
    without(device, SOFTVERBS_FEATURE_DM);
    device.rules.dmabuf_error = EOPNOTSUPP;
    device.attributes.orig_attr.vendor_id = 0xffffff;
    device.attributes.orig_attr.vendor_part_id = 0;
}
void as_old_kernel(Device& device) {
    // This profile imitates kernels before Linux 5.12, which have no ioctl to register a dma-buf.
    device.rules.dmabuf_error = EPROTONOSUPPORT;
}
void as_small_mr(Device& device) {
    device.attributes.orig_attr.max_mr_size = 1 << 20;
}

struct Profile {
    std::string_view name;
    void (*apply)(Device& device);
    /// Whether the ports are always Ethernet (RoCE) ports.
    bool only_ethernet = false;
};
constexpr std::array<Profile, 8> profiles{{
    {"default", as_default},
    {"mlx5", as_mlx5},
    {"efa", as_efa},
    {"bnxt", as_bnxt, true},
    {"irdma", as_irdma, true},
    {"rxe", as_rxe, true},
    {"old-kernel", as_old_kernel},
    {"small-mr", as_small_mr},
}};

const Profile* find(std::string_view name) {
    for (const Profile& profile : profiles) {
        if (profile.name == name) {
            return &profile;
        }
    }
    return nullptr;
}

} // namespace

bool is_profile(std::string_view name) {
    return find(name) != nullptr;
}

std::string profile_names() {
    std::string names;
    for (const Profile& profile : profiles) {
        names += (names.empty() ? "" : ", ") + std::string(profile.name);
    }
    return names;
}

namespace {

/// Returns a number that is greater than the numbers of all uverbs devices of the kernel, for
/// example 3 if the last uverbs device is "uverbs2".
unsigned first_uverbs_number() {
    const KernelPaths kernel;
    unsigned first = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator entry("/sys/class/infiniband_verbs", error), end;
         !error && entry != end; entry.increment(error)) {
        constexpr std::string_view prefix = "uverbs";
        const std::string name = entry->path().filename();
        unsigned number = 0;
        if (name.starts_with(prefix) &&
            std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number).ec ==
                std::errc{}) {
            first = std::max(first, number + 1);
        }
    }
    return first;
}

} // namespace

void describe(Device& device, unsigned index, std::string_view profile, bool ethernet,
              const fabric::HostAddress& address) {
    const Profile& kind = *find(profile);
    const std::string number = std::to_string(index);
    std::snprintf(device.name, sizeof device.name, "soft%s", number.c_str());
    std::snprintf(device.dev_name, sizeof device.dev_name, "uverbs%u",
                  first_uverbs_number() + index);
    std::snprintf(device.dev_path, sizeof device.dev_path, "/sys/class/infiniband_verbs/%s",
                  device.dev_name);
    std::snprintf(device.ibdev_path, sizeof device.ibdev_path, "/sys/class/infiniband/soft%s",
                  number.c_str());
    device.node_type = IBV_NODE_CA;
    device.transport_type = IBV_TRANSPORT_IB;
    device.index = index;
    device.attributes = default_attributes(index);
    device.address = address;
    if (address) {
        device.attributes.orig_attr.node_guid = guid_of(address);
        device.attributes.orig_attr.sys_image_guid = guid_of(address);
    }
    device.guid = device.attributes.orig_attr.node_guid;
    device.ports = {make_port(index, device.guid, ethernet || kind.only_ethernet)};
    if (address) {
        // All GIDs of the device contain the host address, so that a program can use any GID to
        // reach other hosts.
        device.ports[0].gids = {make_gid(address, 0, IBV_GID_TYPE_ROCE_V1),
                                make_gid(address, 1, IBV_GID_TYPE_ROCE_V2)};
    }
    device.completion_vectors = 4;
    device.features = ~unsigned{SOFTVERBS_FEATURE_DM_COPY_GARBAGE};
    device.rules = {};
    device.dm_used = 0;
    kind.apply(device);
    has_short_qp_numbers = device.rules.is_efa;
}

} // namespace softverbs
