// SPDX-License-Identifier: BSD-3-Clause
// Implements rdma_set_option().

#include <cerrno>
#include <cstring>
#include <optional>

#include "cm/manager.hpp"
#include "cm/queries.hpp"

namespace softverbs::cm {

namespace {

template <class Value>
std::optional<Value> as(std::span<const std::byte> bytes) {
    Value value{};
    if (bytes.size() != sizeof value) {
        return std::nullopt;
    }
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
}

int set_id_option(Id& id, std::uint32_t option, std::span<const std::byte> value) {
    const auto byte = as<std::uint8_t>(value);
    const auto integer = as<int>(value);
    switch (option) {
        case RDMA_OPTION_ID_TOS:
            if (!byte) {
                return EINVAL;
            }
            id.type_of_service = *byte;
            return 0;
        case RDMA_OPTION_ID_REUSEADDR:
            if (!integer ||
                (id.state != State::idle && (*integer == 0 || id.state == State::listening))) {
                return EINVAL;
            }
            id.reuse_address = *integer != 0;
            return 0;
        case RDMA_OPTION_ID_AFONLY:
            if (!integer || (id.state != State::idle && id.state != State::bound)) {
                return EINVAL;
            }
            id.family_only = *integer != 0;
            return 0;
        case RDMA_OPTION_ID_ACK_TIMEOUT:
            if (!byte || (id.qp_type != IBV_QPT_RC && id.qp_type != IBV_QPT_XRC_SEND)) {
                return EINVAL;
            }
            id.ack_timeout = *byte;
            return 0;
        default:
            return ENOSYS;
    }
}

int set_ib_path(Manager& manager, Id& id, std::span<const std::byte> value) {
    constexpr std::uint32_t wanted =
        IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
    if (!id.route.has_device() || value.size() % sizeof(ibv_path_data) != 0) {
        return EINVAL;
    }
    for (; !value.empty(); value = value.subspan(sizeof(ibv_path_data))) {
        const auto path = as<ibv_path_data>(value.first(sizeof(ibv_path_data)));
        if (path->flags == wanted) {
            if (id.state != State::address_resolved) {
                return EINVAL;
            }
            set_path(id, path->path);
            id.state = State::route_resolved;
            manager.raise(id, EventType::route_resolved);
            return 0;
        }
    }
    return EINVAL;
}

} // namespace

int Manager::set_option(Id& id, std::uint32_t level, std::uint32_t option,
                        std::span<const std::byte> value) {
    if (level == RDMA_OPTION_ID) {
        const int error = set_id_option(id, option, value);
        if (error == 0) {
            update_binding(id);
        }
        return error;
    }
    return level == RDMA_OPTION_IB && option == RDMA_OPTION_IB_PATH ? set_ib_path(*this, id, value)
                                                                    : ENOSYS;
}

} // namespace softverbs::cm
