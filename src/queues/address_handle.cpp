// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cstddef>
#include <cstring>
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
    : AddressHandle(adopt(pd, create(pd, peer, options))) {}

AddressHandle AddressHandle::to_sender(const ProtectionDomain& pd, const WorkCompletion& completion,
                                       std::span<const std::byte, 40> grh, std::uint8_t port) {
    constexpr const char* function = "ibv_create_ah_from_wc";
    ibv_pd* const native = detail::native_of(pd, function, "ProtectionDomain");
    // Both arguments are copied: ibv_create_ah_from_wc(3) takes non-const pointers, and the GRH
    // must be aligned.
    WorkCompletion received = completion;
    ibv_grh header{};
    static_assert(sizeof header == grh.size());
    std::memcpy(&header, grh.data(), grh.size());
    errno = 0;
    return adopt(pd, detail::check_pointer(ibv_create_ah_from_wc(native, &received, &header, port),
                                           function, [&](int) {
                                               return "port " + std::to_string(port) +
                                                      ", to the sender from queue pair " +
                                                      std::to_string(completion.src_qp);
                                           }));
}

AddressHandle AddressHandle::adopt(const ProtectionDomain& pd, ibv_ah* ah) {
    return AddressHandle(Handle(ah, Handle::deleter_type::holding(pd)));
}

AddressHandle AddressHandle::borrow(ibv_ah* ah) {
    return AddressHandle(ah != nullptr ? Handle(ah, Handle::deleter_type::borrowing(
                                                        ProtectionDomain::borrow(ah->pd)))
                                       : Handle());
}

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
