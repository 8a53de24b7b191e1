// SPDX-License-Identifier: BSD-3-Clause
// Implements the commands of <rdma/rdma_user_cm.h>, with checks and errors like those of the
// kernel.
#include "cm/commands.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "cm/descriptors.hpp"
#include "cm/manager.hpp"
#include "cm/queries.hpp"
#include "cm/user_cm.hpp"
#include "objects/process.hpp"

namespace softverbs::cm {

namespace {

/// Evaluates the result of process_vm_readv(2) or process_vm_writev(2). Returns whether all bytes
/// were copied. Unlike memcpy(3), these calls detect invalid addresses without SIGSEGV. If they
/// fail with another errno than EFAULT or ENOMEM, for example because a seccomp(2) filter forbids
/// them, copies with memcpy(3).
bool copied(ssize_t moved, std::size_t size, void* to, const void* from) noexcept {
    if (moved < 0 && errno != EFAULT && errno != ENOMEM) {
        std::memcpy(to, from, size);
        return true;
    }
    return moved == static_cast<ssize_t>(size);
}

/// Copies @p size bytes from memory of the program. Returns false if the address is invalid; the
/// command then fails with EFAULT, as in the kernel.
bool copy_from_user(void* to, const void* from, std::size_t size) noexcept {
    const iovec local{to, size};
    const iovec remote{const_cast<void*>(from), size};
    return size == 0 ||
           copied(::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0), size, to, from);
}

bool copy_to_user(std::uint64_t to, const void* from, std::size_t size) noexcept {
    auto* const target = reinterpret_cast<void*>(to);
    const iovec local{const_cast<void*>(from), size};
    const iovec remote{target, size};
    return size == 0 ||
           copied(::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0), size, target, from);
}

/// A command that is being executed, and the objects that it needs.
struct Call {
    Manager& manager;
    ChannelFile& file;
    const Command& command;
};

/// Copies the input structure of a command. If the program was built with older headers and its
/// structure is shorter, the missing members are set to 0.
template <class Input>
[[nodiscard]] int read_input(const Call& call, Input& input) {
    input = {};
    return copy_from_user(&input, call.command.input,
                          std::min(sizeof input, call.command.input_size))
               ? 0
               : EFAULT;
}

template <class Response>
[[nodiscard]] int write_response(std::uint64_t address, const Response& response,
                                 std::size_t size = sizeof(Response)) {
    return copy_to_user(address, &response, std::min(size, sizeof response)) ? 0 : EFAULT;
}

/// Copies the input structure of a command, finds the rdma_cm id whose handle the structure
/// contains, and calls @p function with the id and the structure.
template <class Input, class Function>
[[nodiscard]] int with_id(const Call& call, const Function& function) {
    Input input{};
    if (const int error = read_input(call, input); error != 0) {
        return error;
    }
    Id* const id = call.manager.find_id(call.file, input.id);
    return id == nullptr ? errno : function(*id, input);
}

/// Like with_id(), but returns EINVAL if the rdma_cm id has no device.
template <class Input, class Function>
[[nodiscard]] int with_bound_id(const Call& call, const Function& function) {
    return with_id<Input>(call, [&](Id& id, const Input& input) {
        return id.route.has_device() ? function(id, input) : EINVAL;
    });
}

std::optional<Address> parse(const __kernel_sockaddr_storage& address, std::size_t size) {
    return size <= sizeof address ? Address::parse(&address, size) : std::nullopt;
}

/// Parses the address in a command that contains no address size. The address family (IPv4 or IPv6)
/// determines the size.
std::optional<Address> parse_ip(const sockaddr_in6& address) {
    return Address::parse(
        &address, address.sin6_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

// Commands for ids

int create_id(const Call& call) {
    rdma_ucm_create_id input{};
    if (const int error = read_input(call, input); error != 0) {
        return error;
    }
    ibv_qp_type type{};
    switch (input.ps) {
        case RDMA_PS_TCP:
            type = IBV_QPT_RC;
            break;
        case RDMA_PS_UDP:
        case RDMA_PS_IPOIB:
            type = IBV_QPT_UD;
            break;
        case RDMA_PS_IB:
            type = static_cast<ibv_qp_type>(input.qp_type);
            break;
        default:
            return EINVAL;
    }
    Id* const id = call.manager.create_id(call.file, input.uid, input.ps, type);
    const int error = write_response(input.response, rdma_ucm_create_id_resp{id->handle});
    if (error != 0) {
        call.manager.destroy_id(*id);
    }
    return error;
}

int destroy_id(const Call& call) {
    return with_id<rdma_ucm_destroy_id>(call, [&](Id& id, const rdma_ucm_destroy_id& input) {
        return write_response(input.response,
                              rdma_ucm_destroy_id_resp{call.manager.destroy_id(id)});
    });
}

int migrate_id(const Call& call) {
    rdma_ucm_migrate_id input{};
    if (const int error = read_input(call, input); error != 0) {
        return error;
    }
    ChannelFile* const from = file_of(static_cast<int>(input.fd));
    if (from == nullptr) {
        return EINVAL;
    }
    Id* const id = call.manager.find_id(*from, input.id);
    if (id == nullptr) {
        return errno;
    }
    if (from != &call.file) {
        call.manager.migrate_id(*id, call.file);
    }
    return write_response(input.response, rdma_ucm_migrate_resp{id->events_reported});
}

// Commands that bind ids, and that resolve and query addresses and routes

int bind_ip(const Call& call) {
    return with_id<rdma_ucm_bind_ip>(call, [&](Id& id, const rdma_ucm_bind_ip& input) {
        const auto address = parse_ip(input.addr);
        return address ? call.manager.bind(id, *address) : EAFNOSUPPORT;
    });
}

int bind(const Call& call) {
    return with_id<rdma_ucm_bind>(call, [&](Id& id, const rdma_ucm_bind& input) {
        const auto address = parse(input.addr, input.addr_size);
        return address && input.reserved == 0 ? call.manager.bind(id, *address) : EINVAL;
    });
}

int listen(const Call& call) {
    return with_id<rdma_ucm_listen>(call, [&](Id& id, const rdma_ucm_listen& input) {
        return call.manager.listen(id, static_cast<int>(input.backlog));
    });
}

int resolve_ip(const Call& call) {
    return with_id<rdma_ucm_resolve_ip>(call, [&](Id& id, const rdma_ucm_resolve_ip& input) {
        const auto destination = parse_ip(input.dst_addr);
        const auto source = input.src_addr.sin6_family == 0 ? Address() : parse_ip(input.src_addr);
        return destination && source ? call.manager.resolve_address(id, *source, *destination)
                                     : EINVAL;
    });
}

int resolve_address(const Call& call) {
    return with_id<rdma_ucm_resolve_addr>(call, [&](Id& id, const rdma_ucm_resolve_addr& input) {
        const auto destination = parse(input.dst_addr, input.dst_size);
        const auto source = input.src_size == 0 ? Address() : parse(input.src_addr, input.src_size);
        return destination && source && input.reserved == 0
                   ? call.manager.resolve_address(id, *source, *destination)
                   : EINVAL;
    });
}

int resolve_route(const Call& call) {
    return with_bound_id<rdma_ucm_resolve_route>(
        call, [&](Id& id, const auto&) { return call.manager.resolve_route(id); });
}

int query_route(const Call& call) {
    return with_id<rdma_ucm_query>(call, [&](Id& id, const rdma_ucm_query& input) {
        return write_response(input.response, query_route(id), call.command.output_size);
    });
}

int query(const Call& call) {
    return with_id<rdma_ucm_query>(call, [&](Id& id, const rdma_ucm_query& input) {
        const std::size_t room = call.command.output_size;
        const bool fits = room >= offsetof(rdma_ucm_query_addr_resp, ibdev_index);
        switch (input.option) {
            case RDMA_USER_CM_QUERY_ADDR:
                return fits ? write_response(input.response, query_address(id), room) : ENOSPC;
            case RDMA_USER_CM_QUERY_GID:
                return fits ? write_response(input.response, query_gid(id), room) : ENOSPC;
            case RDMA_USER_CM_QUERY_PATH: {
                struct { // struct rdma_ucm_query_path_resp with one path
                    std::uint32_t paths;
                    std::uint32_t reserved;
                    ibv_path_data path;
                } response{id.route.paths, 0, query_path(id)};
                constexpr std::size_t head = sizeof(rdma_ucm_query_path_resp);
                if (room < head) {
                    return ENOSPC;
                }
                const bool with_path = id.route.paths != 0 && room >= sizeof response;
                return write_response(input.response, response, with_path ? sizeof response : head);
            }
            default:
                return ENOSYS;
        }
    });
}

// Commands for connections

int connect(const Call& call) {
    return with_bound_id<rdma_ucm_connect>(call, [&](Id& id, const rdma_ucm_connect& input) {
        return input.conn_param.valid != 0 ? call.manager.connect(id, input.conn_param, input.ece)
                                           : EINVAL;
    });
}

int accept(const Call& call) {
    return with_bound_id<rdma_ucm_accept>(call, [&](Id& id, const rdma_ucm_accept& input) {
        return call.manager.accept(id, input.uid, input.conn_param, input.ece);
    });
}

int reject(const Call& call) {
    return with_bound_id<rdma_ucm_reject>(
        call, [&](Id& id, const rdma_ucm_reject& input) { return call.manager.reject(id, input); });
}

int disconnect(const Call& call) {
    return with_bound_id<rdma_ucm_disconnect>(
        call, [&](Id& id, const auto&) { return call.manager.disconnect(id); });
}

int notify(const Call& call) {
    return with_bound_id<rdma_ucm_notify>(call, [&](Id& id, const rdma_ucm_notify& input) {
        return call.manager.notify(id, input.event);
    });
}

int init_qp_attr(const Call& call) {
    return with_bound_id<rdma_ucm_init_qp_attr>(
        call, [&](Id& id, const rdma_ucm_init_qp_attr& input) {
            ib_uverbs_qp_attr attributes{};
            const int error = queue_pair_attributes(id, input.qp_state, attributes);
            return error != 0 ? error : write_response(input.response, attributes);
        });
}

int set_option(const Call& call) {
    return with_id<rdma_ucm_set_option>(call, [&](Id& id, const rdma_ucm_set_option& input) {
        constexpr std::uint32_t largest = 4096;
        if (input.optlen > largest) {
            return EINVAL;
        }
        std::vector<std::byte> value(input.optlen);
        if (!copy_from_user(value.data(), reinterpret_cast<const void*>(input.optval),
                            value.size())) {
            return EFAULT;
        }
        return call.manager.set_option(id, input.level, input.optname, value);
    });
}

// Commands for multicast groups

int join(const Call& call, std::uint32_t handle, const std::optional<Address>& group,
         std::uint16_t flags, std::uint64_t uid, std::uint64_t response) {
    if (!group || flags >= RDMA_MC_JOIN_FLAG_RESERVED) {
        return EINVAL;
    }
    Id* const id = call.manager.find_id(call.file, handle);
    if (id == nullptr) {
        return errno;
    }
    std::uint32_t joined = 0;
    if (const int error = call.manager.join(*id, *group, uid, joined); error != 0) {
        return error;
    }
    const int error = write_response(response, rdma_ucm_create_id_resp{joined});
    if (error != 0) {
        // The handle of the multicast group could not be copied to the program. Without the handle,
        // the program can never leave the group, so leave it now.
        Id* owner = nullptr;
        if (Multicast* const made = call.manager.find_group(call.file, joined, owner);
            made != nullptr) {
            call.manager.leave(*owner, *made);
        }
    }
    return error;
}

int join_ip_mcast(const Call& call) {
    rdma_ucm_join_ip_mcast input{};
    const int error = read_input(call, input);
    return error != 0 ? error
                      : join(call, input.id, parse_ip(input.addr), RDMA_MC_JOIN_FLAG_FULLMEMBER,
                             input.uid, input.response);
}

int join_mcast(const Call& call) {
    rdma_ucm_join_mcast input{};
    const int error = read_input(call, input);
    return error != 0 ? error
                      : join(call, input.id, parse(input.addr, input.addr_size), input.join_flags,
                             input.uid, input.response);
}

int leave_mcast(const Call& call) {
    rdma_ucm_destroy_id input{};
    if (const int error = read_input(call, input); error != 0) {
        return error;
    }
    Id* owner = nullptr;
    Multicast* const group = call.manager.find_group(call.file, input.id, owner);
    if (group == nullptr) {
        return errno;
    }
    return write_response(input.response,
                          rdma_ucm_destroy_id_resp{call.manager.leave(*owner, *group)});
}

// Commands for events

int get_event(const Call& call) {
    rdma_ucm_get_event input{};
    Event event;
    if (!call.file.pop(event)) {
        return EAGAIN;
    }
    if (read_input(call, input) != 0 ||
        write_response(input.response, event.response, call.command.output_size) != 0) {
        call.file.push_front(event);
        return EFAULT;
    }
    call.file.event_thread = ::gettid();
    ++event.owner->events_reported;
    if (event.multicast != nullptr) {
        ++event.multicast->events_reported;
    }
    if (event.request != nullptr) {
        ++event.owner->backlog;
        event.request->listener = nullptr;
    }
    return 0;
}

/// An entry of the command table.
struct Entry {
    int (*execute)(const Call& call);
    /// The librdmacm function that sends the command. Its name selects the command in a planned
    /// fault (an error that a test injects).
    std::string_view function;
    /// Size in bytes of the response structure in the oldest headers. A command with a smaller
    /// response buffer fails with ENOSPC. 0: parse_command() does not check the size of the buffer.
    std::size_t smallest_output = 0;
};

constexpr std::array<Entry, RDMA_USER_CM_CMD_JOIN_MCAST + 1> table{{
    {create_id, "rdma_create_id", sizeof(rdma_ucm_create_id_resp)},
    {destroy_id, "rdma_destroy_id", sizeof(rdma_ucm_destroy_id_resp)},
    {bind_ip, "rdma_bind_addr"},
    {resolve_ip, "rdma_resolve_addr"},
    {resolve_route, "rdma_resolve_route"},
    {query_route, {}, offsetof(rdma_ucm_query_route_resp, ibdev_index)},
    {connect, "rdma_connect"},
    {listen, "rdma_listen"},
    {accept, "rdma_accept"},
    {reject, "rdma_reject"},
    {disconnect, "rdma_disconnect"},
    {init_qp_attr, "rdma_init_qp_attr", sizeof(ib_uverbs_qp_attr)},
    {get_event, "rdma_get_cm_event", offsetof(rdma_ucm_event_resp, reserved)},
    {nullptr, {}}, // GET_OPTION: not implemented in the kernel either
    {set_option, "rdma_set_option"},
    {notify, "rdma_notify"},
    {join_ip_mcast, "rdma_join_multicast", sizeof(rdma_ucm_create_id_resp)},
    {leave_mcast, "rdma_leave_multicast", sizeof(rdma_ucm_destroy_id_resp)},
    {migrate_id, "rdma_migrate_id"},
    {query, {}},
    {bind, "rdma_bind_addr"},
    {resolve_address, "rdma_resolve_addr"},
    {join_mcast, "rdma_join_multicast", sizeof(rdma_ucm_create_id_resp)},
}};

} // namespace

int parse_command(const void* buffer, std::size_t size, Command& command) {
    rdma_ucm_cmd_hdr header{};
    if (size < sizeof header) {
        return EINVAL;
    }
    if (!copy_from_user(&header, buffer, sizeof header)) {
        return EFAULT;
    }
    if (header.cmd >= table.size() || header.in + sizeof header > size) {
        return EINVAL;
    }
    if (table[header.cmd].execute == nullptr) {
        return ENOSYS;
    }
    if (header.out < table[header.cmd].smallest_output) {
        return ENOSPC;
    }
    command = {header.cmd, static_cast<const std::byte*>(buffer) + sizeof header, header.in,
               header.out};
    return 0;
}

int planned_failure(const Command& command) {
    const std::string_view function = table[command.number].function;
    if (function.empty()) {
        return 0;
    }
    const Guard guard;
    return process().faults.enter(function);
}

int execute(int descriptor, const Command& command) {
    try {
        Manager* const there = existing_manager();
        if (there == nullptr) {
            return EBADF;
        }
        const std::scoped_lock guard(there->lock);
        ChannelFile* const file = file_of(descriptor);
        return file == nullptr ? EBADF : table[command.number].execute({*there, *file, command});
    } catch (const std::bad_alloc&) {
        return ENOMEM;
    }
}

} // namespace softverbs::cm
