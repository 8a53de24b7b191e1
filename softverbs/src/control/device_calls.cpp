// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "abi/entry.hpp"
#include "abi/operations.hpp"
#include "control/control_socket.hpp"
#include "control/settings.hpp"

namespace softverbs {

namespace {

constexpr unsigned max_ports = 8;
constexpr std::uint32_t max_gids = 1024;
constexpr std::uint8_t link_up = 5;
constexpr std::uint8_t link_disabled = 3;

/// Calls @p function with the Device that has the index @p index (from 0), and returns the result
/// of @p function. Returns ENODEV if the device does not exist, and ENOMEM if @p function throws
/// std::bad_alloc. Holds Process::lock during the call.
template <class Function>
int with_device(unsigned index, const Function& function) {
    return locked([&] {
        auto& devices = process().devices;
        return index < devices.size() ? function(*devices[index]) : ENODEV;
    });
}

/// Like with_device(), but calls @p function with the Device and its port number @p number (from
/// 1). Returns EINVAL if the port does not exist.
template <class Function>
int with_port(unsigned index, unsigned number, const Function& function) {
    return with_device(index, [&](Device& device) {
        Port* const port = device.port(number);
        return port != nullptr ? function(device, *port) : EINVAL;
    });
}

template <class Function>
void for_each_context(const Device& device, const Function& function) {
    for (Context* const context : process().contexts) {
        if (context->device == &device) {
            function(*context);
        }
    }
}

int reset(const char* profile, unsigned count) {
    Settings settings = settings_from_environment();
    if (profile != nullptr) {
        if (!is_profile(profile)) {
            return EINVAL;
        }
        settings.profile = profile;
    }
    if (count > max_devices && count != SOFTVERBS_NO_DEVICES) {
        return EINVAL;
    }
    if (count != 0) {
        settings.devices = count == SOFTVERBS_NO_DEVICES ? 0 : count;
    }
    auto& devices = process().devices;
    if (std::ranges::any_of(devices, [](const auto& device) { return device->holders != 0; })) {
        return EBUSY;
    }
    // Overwrite the existing Device objects instead of replacing them, because the program may
    // still use their addresses.
    auto described = describe_devices(settings);
    const std::size_t kept = std::min(devices.size(), described.size());
    for (std::size_t i = 0; i < kept; ++i) {
        *devices[i] = std::move(*described[i]);
    }
    devices.resize(kept);
    std::move(described.begin() + static_cast<std::ptrdiff_t>(kept), described.end(),
              std::back_inserter(devices));
    process().faults.clear();
    control::cancel_all();
    process().engine.ports_changed();
    return 0;
}

/// Creates port number @p number of a device: a copy of port 1 with other GIDs, and with another
/// LID if the LID of port 1 is not 0.
Port additional_port(const Port& first, unsigned number) {
    Port port = first;
    const unsigned offset = number - 1;
    if (port.attributes.lid != 0) {
        port.attributes.lid =
            static_cast<std::uint16_t>(port.attributes.lid + offset * max_devices);
    }
    for (ibv_gid_entry& entry : port.gids) {
        entry.port_num = number;
        entry.gid.raw[14] = static_cast<std::uint8_t>(entry.gid.raw[14] + offset);
    }
    return port;
}

int set_gid_table(Port& port, const ibv_gid_entry* entries, std::size_t count, unsigned number) {
    std::vector<ibv_gid_entry> gids;
    for (std::size_t i = 0; i < count; ++i) {
        const ibv_gid_entry& entry = entries[i];
        if (entry.gid_index >= max_gids) {
            return EINVAL;
        }
        if (entry.gid_index >= gids.size()) {
            gids.resize(entry.gid_index + 1);
        }
        gids[entry.gid_index] = entry;
    }
    for (std::size_t i = 0; i < gids.size(); ++i) {
        gids[i].gid_index = static_cast<std::uint32_t>(i);
        gids[i].port_num = number;
    }
    port.attributes.gid_tbl_len =
        std::max(port.attributes.gid_tbl_len, static_cast<int>(gids.size()));
    port.gids = std::move(gids);
    return 0;
}

void set_port_state(Device& device, Port& port, std::uint8_t number, ibv_port_state state) {
    if (port.attributes.state == state) {
        return;
    }
    const bool up = state == IBV_PORT_ACTIVE;
    port.attributes.state = state;
    port.attributes.phys_state = up ? link_up : link_disabled;
    ibv_async_event event{};
    event.event_type = up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
    event.element.port_num = number;
    for_each_context(device, [&](Context& context) { raise_event(context, event); });
    process().engine.ports_changed();
}

} // namespace

} // namespace softverbs

using namespace softverbs;

SOFTVERBS_ENTRY int softverbs_reset(const char* profile, unsigned devices) {
    return locked([&] { return reset(profile, devices); });
}

SOFTVERBS_ENTRY void softverbs_hide_real_devices(int hide) {
    const Guard guard;
    process().real_devices_hidden = hide != 0;
}

SOFTVERBS_ENTRY int softverbs_get_device_attr(unsigned device, ibv_device_attr_ex* attr) {
    return with_device(device, [&](const Device& found) {
        *attr = found.attributes;
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_device_attr(unsigned device, const ibv_device_attr_ex* attr) {
    return with_device(device, [&](Device& found) {
        if (attr == nullptr) {
            return EINVAL;
        }
        const auto ports = static_cast<std::uint8_t>(found.ports.size());
        found.attributes = *attr;
        found.attributes.comp_mask = 0;
        found.attributes.orig_attr.phys_port_cnt = ports;
        found.attributes.phys_port_cnt_ex = ports;
        found.guid = attr->orig_attr.node_guid;
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_device_name(unsigned device, const char* name) {
    return with_device(device, [&](Device& found) {
        if (name == nullptr || *name == '\0' || std::strlen(name) >= sizeof found.name) {
            return EINVAL;
        }
        std::snprintf(found.name, sizeof found.name, "%s", name);
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_completion_vectors(unsigned device, int vectors) {
    return with_device(device, [&](Device& found) {
        if (vectors < 1) {
            return EINVAL;
        }
        found.completion_vectors = vectors;
        for_each_context(found,
                         [&](Context& context) { context.context.num_comp_vectors = vectors; });
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_features(unsigned device, unsigned features) {
    return with_device(device, [&](Device& found) {
        found.features = features;
        for_each_context(found, set_operations);
        return 0;
    });
}

SOFTVERBS_ENTRY unsigned softverbs_features(unsigned device) {
    unsigned features = 0;
    with_device(device, [&](const Device& found) {
        features = found.features;
        return 0;
    });
    return features;
}

SOFTVERBS_ENTRY int softverbs_set_dmabuf_errors(unsigned device, int before, int attach,
                                                int unchecked) {
    return with_device(device, [&](Device& found) {
        if (before < 0 || attach < 0) {
            return EINVAL;
        }
        found.rules.dmabuf_error = before;
        found.rules.dmabuf_attach_error = attach;
        found.rules.dmabuf_unchecked = unchecked != 0;
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_port_count(unsigned device, std::uint8_t count) {
    return with_device(device, [&](Device& found) {
        if (count < 1 || count > max_ports) {
            return EINVAL;
        }
        const auto there = static_cast<unsigned>(found.ports.size());
        for (unsigned number = there + 1; number <= count; ++number) {
            found.ports.push_back(additional_port(found.ports.front(), number));
        }
        found.ports.resize(count);
        found.attributes.orig_attr.phys_port_cnt = count;
        found.attributes.phys_port_cnt_ex = count;
        process().engine.ports_changed();
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_port_attr(unsigned device, std::uint8_t port,
                                            const ibv_port_attr* attr) {
    return with_port(device, port, [&](Device&, Port& found) {
        if (attr == nullptr) {
            return EINVAL;
        }
        found.attributes = *attr;
        found.pkeys.resize(std::max<std::size_t>(attr->pkey_tbl_len, 1));
        process().engine.ports_changed();
        return 0;
    });
}

SOFTVERBS_ENTRY int softverbs_set_gid_table(unsigned device, std::uint8_t port,
                                            const ibv_gid_entry* entries, std::size_t count) {
    return with_port(device, port, [&](Device&, Port& found) {
        return count != 0 && entries == nullptr ? EINVAL
                                                : set_gid_table(found, entries, count, port);
    });
}

SOFTVERBS_ENTRY int softverbs_set_port_state(unsigned device, std::uint8_t port,
                                             ibv_port_state state) {
    return with_port(device, port, [&](Device& owner, Port& found) {
        if (state != IBV_PORT_ACTIVE && state != IBV_PORT_DOWN) {
            return EINVAL;
        }
        set_port_state(owner, found, port, state);
        return 0;
    });
}
