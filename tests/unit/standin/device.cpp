// SPDX-License-Identifier: BSD-3-Clause
// Devices, contexts, what they tell about themselves, and asynchronous events.
#include <endian.h>
#include <unistd.h>

#include <algorithm>

#include "state.hpp"

using standin::fail;
using standin::Kind;
using standin::state;

namespace standin {

List::~List() {
    for (ListedDevice* const device : devices) {
        --device->holders;
    }
}

Context::~Context() {
    if (listed != nullptr) {
        --listed->holders;
    }
}

const Device& device_of(const ibv_context* context) {
    return static_cast<const ListedDevice*>(context->device)->spec;
}

namespace {

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* /*input*/,
                    ibv_device_attr_ex* attributes, std::size_t size) {
    const auto guard = lock();
    if (const int error = state().enter("ibv_query_device_ex"); error != 0) {
        return error;
    }
    if (size < sizeof(*attributes)) {
        return EINVAL;
    }
    *attributes = device_of(context).attributes;
    attributes->orig_attr.phys_port_cnt =
        static_cast<std::uint8_t>(device_of(context).ports.size());
    return 0;
}

int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* attributes,
               std::size_t /*size*/) {
    const auto guard = lock();
    if (const int error = state().enter("ibv_query_port"); error != 0) {
        return error;
    }
    const auto& ports = device_of(context).ports;
    if (number == 0 || number > ports.size()) {
        return EINVAL;
    }
    *attributes = ports[number - 1U].attributes;
    return 0;
}

void fill_in(Context& context, ListedDevice& device) {
    context.listed = &device;
    ++device.holders;
    context.sz = sizeof(verbs_context);
    context.query_device_ex = query_device_ex;
    context.query_port = query_port;
    context.context.device = &device;
    context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context.context.cmd_fd = -1;
    context.context.async_fd = context.events.read_end;
    context.context.num_comp_vectors = device.spec.completion_vectors;
    set_queue_operations(context.context.ops);
    set_queue_pair_operations(context);
    set_memory_operations(context);
}

} // namespace
} // namespace standin

ibv_device** ibv_get_device_list(int* count) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_get_device_list"); error != 0) {
        return fail(error);
    }
    auto* const list = state().make<standin::List>(Kind::list, {});
    for (const auto& device : state().devices) {
        ++device->holders;
        list->devices.push_back(device.get());
        list->natives.push_back(device.get());
    }
    if (count != nullptr) {
        *count = static_cast<int>(list->natives.size());
    }
    list->natives.push_back(nullptr);
    return list->natives.data();
}

void ibv_free_device_list(ibv_device** natives) {
    const auto guard = standin::lock();
    for (const auto& [address, object] : state().objects) {
        if (object.kind == Kind::list &&
            static_cast<const standin::List*>(address)->natives.data() == natives) {
            state().destroy(address, Kind::list, "ibv_free_device_list");
            return;
        }
    }
    state().violation("ibv_free_device_list", "not there, or freed before");
}

const char* ibv_get_device_name(ibv_device* device) {
    return device->name;
}

__be64 ibv_get_device_guid(ibv_device* device) {
    return htobe64(static_cast<standin::ListedDevice*>(device)->spec.guid);
}

ibv_context* ibv_open_device(ibv_device* device) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_open_device"); error != 0) {
        return fail(error);
    }
    auto& listed = static_cast<standin::ListedDevice&>(*device);
    if (listed.holders == 0) {
        state().violation("ibv_open_device", "the list that held the device is gone");
        return fail(ENODEV);
    }
    if (listed.spec.open_error != 0) {
        return fail(listed.spec.open_error);
    }
    auto* const context = state().make<standin::Context>(Kind::context, {});
    standin::fill_in(*context, listed);
    return &context->context;
}

int ibv_close_device(ibv_context* context) {
    const auto guard = standin::lock();
    if (const int error = state().destroy(context, Kind::context, "ibv_close_device"); error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

int ibv_query_gid(ibv_context* context, std::uint8_t number, int index, ibv_gid* gid) {
    const auto guard = standin::lock();
    int error = state().enter("ibv_query_gid");
    const auto& ports = standin::device_of(context).ports;
    if (error == 0 && (number == 0 || number > ports.size() || index < 0 ||
                       index >= ports[number - 1U].attributes.gid_tbl_len)) {
        error = EINVAL;
    }
    if (error != 0) {
        errno = error;
        return -1;
    }
    *gid = {};
    for (const ibv_gid_entry& entry : ports[number - 1U].gids) {
        if (entry.gid_index == static_cast<std::uint32_t>(index)) {
            *gid = entry.gid;
        }
    }
    return 0;
}

// As ibv_query_gid_table(3): entries of all ports; the kernel refuses a table of no entries.
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t capacity,
                             std::uint32_t /*flags*/, std::size_t entry_size) {
    const auto guard = standin::lock();
    if (const int error = state().enter("ibv_query_gid_table"); error != 0) {
        return -error;
    }
    if (capacity == 0 || entry_size != sizeof(*entries)) {
        return -EINVAL;
    }
    std::size_t count = 0;
    for (const standin::Port& port : standin::device_of(context).ports) {
        if (port.gids.size() > capacity - count) {
            return -EINVAL;
        }
        std::copy(port.gids.begin(), port.gids.end(), entries + count);
        count += port.gids.size();
    }
    return static_cast<ssize_t>(count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    {
        const auto guard = standin::lock();
        if (const int error = state().enter("ibv_get_async_event"); error != 0) {
            errno = error;
            return -1;
        }
    }
    if (::read(context->async_fd, event, sizeof(*event)) != sizeof(*event)) {
        return -1;
    }
    const auto guard = standin::lock();
    ++state().unacknowledged;
    return 0;
}

void ibv_ack_async_event(ibv_async_event* /*event*/) {
    const auto guard = standin::lock();
    --state().unacknowledged;
}

void standin::raise_event(ibv_context* context, const ibv_async_event& event) {
    const int fd = static_cast<Context*>(verbs_get_ctx(context))->events.write_end;
    if (::write(fd, &event, sizeof(event)) != sizeof(event)) {
        const auto guard = lock();
        state().violation("raise_event", "the event was not written");
    }
}
