// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <string>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/queue_pair.hpp>

#include "device/efadv.hpp"

#if __has_include(<infiniband/efadv.h>)
#include <infiniband/efadv.h>
static_assert(sizeof(rdmabuf::detail::efadv::AhAttr) == sizeof(::efadv_ah_attr));
static_assert(offsetof(rdmabuf::detail::efadv::AhAttr, ahn) == offsetof(::efadv_ah_attr, ahn));
#endif

namespace rdmabuf {

int detail::DestroyAh::call(ibv_ah* ah) noexcept {
    return ibv_destroy_ah(ah);
}

ibv_ah_attr detail::make_ah_attr(const QueuePairAddress& peer,
                                 const AddressHandleOptions& options) noexcept {
    ibv_ah_attr attributes{};
    attributes.dlid = peer.lid;
    attributes.sl = options.service_level;
    attributes.port_num = options.port;
    // If the peer has a GID, packets have a global route header (GRH). A RoCE peer always has a GID
    // and no LID; an InfiniBand peer may have no GID.
    attributes.is_global = peer.gid.is_zero() ? 0 : 1;
    attributes.grh.dgid = peer.gid.native();
    attributes.grh.sgid_index = options.gid_index;
    attributes.grh.hop_limit = options.hop_limit;
    attributes.grh.traffic_class = options.traffic_class;
    attributes.grh.flow_label = options.flow_label;
    attributes.static_rate = static_cast<std::uint8_t>(options.static_rate);
    attributes.src_path_bits = options.src_path_bits;
    return attributes;
}

namespace {

ibv_ah* create(const ProtectionDomain& pd, const QueuePairAddress& peer,
               const AddressHandleOptions& options) {
    ibv_pd* const native = detail::native_of(pd, "ibv_create_ah", "ProtectionDomain");
    ibv_ah_attr attributes = detail::make_ah_attr(peer, options);
    errno = 0;
    return detail::check_pointer(ibv_create_ah(native, &attributes), "ibv_create_ah", [&](int) {
        return "port " + std::to_string(options.port) + ", GID index " +
               std::to_string(options.gid_index) + ", to " + to_string(peer.gid);
    });
}

} // namespace

AddressHandle::AddressHandle(const ProtectionDomain& pd, const QueuePairAddress& peer,
                             const AddressHandleOptions& options)
    : handle_(create(pd, peer, options), decltype(handle_)::deleter_type::holding(pd)) {}

std::uint16_t AddressHandle::number() const {
    constexpr const char* function = "efadv_query_ah";
    ibv_ah* const ah = detail::native_of(*this, function, "AddressHandle");
    const auto query = detail::efadv::find<detail::efadv::QueryAh>(function);
    detail::efadv::AhAttr attributes{};
    detail::check_zero(
        query != nullptr ? query(ah, &attributes, sizeof attributes) : EOPNOTSUPP, function,
        std::string_view("only EFA has numbers of address handles, with libefa of rdma-core 26"));
    return attributes.ahn;
}

} // namespace rdmabuf
