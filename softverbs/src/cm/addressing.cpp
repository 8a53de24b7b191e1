// SPDX-License-Identifier: BSD-3-Clause
// Implements the rdma_cm commands that bind an id, and that resolve addresses and routes.
#include <cerrno>

#include "cm/manager.hpp"
#include "cm/multicast.hpp"
#include "cm/routes.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

/// The maximum and default backlog of rdma_listen(), as in the kernel. The backlog limits the
/// connection requests that the program has not received yet.
constexpr unsigned max_backlog = 1024;

/// Returns the loopback address of an address family. For InfiniBand, returns the IPv6 loopback
/// address.
Address loopback(sa_family_t family) {
    Gid gid{};
    if (family == AF_INET) {
        gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
    } else {
        gid.back() = 1;
    }
    return Address::from_gid(gid, family == family_ib ? sa_family_t{AF_INET6} : family);
}

/// Sets the source address of an id that was bound to the unspecified address. The port does not
/// change. Does nothing if @p source is of another address family.
void set_source(Id& id, const Address& source) {
    const std::uint16_t port = id.source.port();
    if (id.source.family() == source.family()) {
        id.source = source;
        id.source.set_port(port);
    }
}

/// Returns the errno for a destination that is not an address of this machine: ENETUNREACH if it is
/// an IP address without a route, otherwise ENODEV.
int unreachable(const Address& destination) {
    return destination.family() != family_ib && !route_source(destination) ? ENETUNREACH : ENODEV;
}

} // namespace

int Manager::bind(Id& id, const Address& address) {
    if (id.state != State::idle) {
        return EINVAL;
    }
    Route route;
    if (!address.is_unspecified()) {
        int error = 0;
        Device* const device = find_device(address, error);
        if (device == nullptr) {
            return error;
        }
        set_device(route, *device, address);
    }
    Binding binding{id.port_space, address, id.reuse_address,
                    id.family_only.value_or(address.family() == AF_INET)};
    // An InfiniBand address may contain a port space in its service ID. If so, use this port space
    // instead of that of the id.
    if (const std::uint16_t space = address.service_port_space(); space != 0) {
        binding.port_space = space;
    }
    Registry::Index index = 0;
    if (const int error = registry_.bind(binding, index); error != 0) {
        return error;
    }
    id.binding = index;
    id.family_only = binding.family_only;
    id.source = binding.address;
    id.destination = Address::unspecified(address.family());
    id.route = route;
    id.state = State::bound;
    return 0;
}

void Manager::update_binding(const Id& id) noexcept {
    if (id.binding) {
        registry_.set_options(*id.binding, id.reuse_address, id.family_only.value_or(false));
    }
}

int Manager::listen(Id& id, int backlog) {
    if (id.state == State::idle) {
        if (const int error = bind(id, Address::unspecified(AF_INET)); error != 0) {
            return error;
        }
    }
    if (id.state != State::bound) {
        return EINVAL;
    }
    if (const int error = exchange_.node().serve_directory(); error != 0) {
        return error;
    }
    if (const int error = registry_.listen(*id.binding); error != 0) {
        return error;
    }
    id.backlog = backlog > 0 && static_cast<unsigned>(backlog) < max_backlog
                     ? static_cast<unsigned>(backlog)
                     : max_backlog;
    id.state = State::listening;
    return 0;
}

int Manager::resolve_address(Id& id, const Address& source, const Address& destination) {
    if (id.state == State::idle) {
        const bool given = source.family() != 0 && (!source.is_unspecified() || source.port() != 0);
        if (given && source.family() != destination.family()) {
            return EINVAL;
        }
        const int error = bind(id, given ? source : Address::unspecified(destination.family()));
        if (error != 0) {
            return error;
        }
    }
    if (id.state != State::bound || id.source.family() != destination.family()) {
        return EINVAL;
    }
    id.destination = destination;
    int error = 0;
    if (destination.is_multicast()) {
        // Multicast uses the device of the source address. If the id is not bound to a device, the
        // kernel's routing table determines the source address; without a route, it is the loopback
        // address.
        if (!id.route.has_device()) {
            const Address source_address =
                route_source(destination).value_or(loopback(destination.family()));
            Device* const device = find_device(source_address, error);
            if (device == nullptr) {
                raise(id, EventType::address_error, -error);
                return 0;
            }
            set_source(id, source_address);
            set_device(id.route, *device, source_address);
        }
        id.state = State::address_resolved;
        raise(id, EventType::address_resolved);
        return 0;
    }
    // As in connect(2), the unspecified address as destination means this machine.
    const Address target =
        destination.is_unspecified() ? loopback(destination.family()) : destination;
    Device* const remote = find_device(target, error);
    if (remote == nullptr && error == EADDRNOTAVAIL && !process().network.addresses.empty() &&
        target.family() != family_ib) {
        resolve_remote_address(id);
        return 0;
    }
    if (remote == nullptr) {
        raise(id, EventType::address_error,
              -(error == EADDRNOTAVAIL ? unreachable(target) : error));
        return 0;
    }
    if (destination.is_unspecified() && destination.family() != family_ib) {
        id.destination = target;
        id.destination.set_port(destination.port());
    }
    if (!id.route.has_device()) {
        // The destination is an address of this machine, so it is also a valid source address.
        set_source(id, target);
        set_device(id.route, *remote, target);
    }
    set_destination(id.route, *remote, target);
    id.state = State::address_resolved;
    raise(id, EventType::address_resolved);
    return 0;
}

/// Resolves a destination address that belongs to another host.
void Manager::resolve_remote_address(Id& id) {
    Address source;
    Device* const device =
        find_network_device(id.destination, id.route.has_device() ? &id.source : nullptr, source);
    if (device == nullptr) {
        raise(id, EventType::address_error, -ENETUNREACH);
        return;
    }
    set_source(id, source);
    set_device(id.route, *device, source);
    id.route.dgid = id.destination.gid();
    id.route.remote = true;
    id.state = State::address_resolved;
    raise(id, EventType::address_resolved);
}

int Manager::resolve_route(Id& id) {
    if (id.state != State::address_resolved) {
        return EINVAL;
    }
    id.route.paths = 1;
    id.route.traffic_class = id.type_of_service;
    id.route.sl = static_cast<std::uint8_t>(id.route.ethernet ? (id.type_of_service >> 5U) : 0U);
    id.state = State::route_resolved;
    raise(id, EventType::route_resolved);
    return 0;
}

int Manager::join(Id& id, const Address& group, std::uint64_t uid, std::uint32_t& handle) {
    if ((id.state != State::bound && id.state != State::address_resolved) || !id.datagram() ||
        !id.route.has_device()) {
        return EINVAL;
    }
    Multicast made;
    made.handle = next_group_++;
    made.uid = uid;
    made.mgid = multicast_gid(group, id.port_space, id.route);
    made.mlid = multicast_lid(made.mgid, id.route);
    id.groups.push_back(made);
    handle = made.handle;
    Event event;
    event.response.event = static_cast<std::uint32_t>(EventType::multicast_join);
    event.response.param.ud = multicast_parameters(made, id.port_space, id.route);
    event.multicast = &id.groups.back();
    raise(id, event);
    return 0;
}

unsigned Manager::leave(Id& owner, Multicast& group) {
    owner.file->remove([&group](const Event& event) { return event.multicast == &group; });
    const unsigned reported = group.events_reported;
    owner.groups.remove_if([&group](const Multicast& each) { return &each == &group; });
    return reported;
}

} // namespace softverbs::cm
