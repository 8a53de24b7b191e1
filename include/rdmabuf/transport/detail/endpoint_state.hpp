// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rdmabuf/context.hpp>
#include <rdmabuf/protection_domain.hpp>
#include <rdmabuf/registration_cache.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport/detail/engine_limits.hpp>
#include <rdmabuf/transport/options.hpp>

namespace rdmabuf::transport::detail {

[[nodiscard]] inline ErrorInfo error_info(int error, const char* message) {
    return {error, "", message};
}

/// The state that an Endpoint shares with its listeners, connectors and channels.
struct EndpointState {
    EndpointOptions options;
    Resolver resolver;
    std::vector<ProtectionDomain> pds;
    std::optional<RegistrationCache> cache;
    /// The smallest DeviceAttributes::max_mr_size of all devices, in bytes.
    std::uint64_t max_mr_size = std::numeric_limits<std::uint64_t>::max();
    /// The smallest max_msg_sz (maximum message length) of the ports of all devices, in bytes.
    std::uint64_t max_message = std::numeric_limits<std::uint64_t>::max();
    /// The smallest max_qp_wr of all devices, but at most max_send_depth.
    std::uint32_t max_send_wr = max_send_depth;

    [[nodiscard]] static Result<std::shared_ptr<EndpointState>> make(
        std::span<const Context> devices, const Resolver& resolver,
        const EndpointOptions& options) noexcept {
        if (const char* reason = refusal(devices.size(), options); reason != nullptr) {
            return error_info(EINVAL, reason);
        }
        auto made = attempt([] { return std::make_shared<EndpointState>(); });
        if (!made) {
            return made;
        }
        EndpointState& state = **made;
        const auto filled = attempt([&] {
            state.options = options;
            state.resolver = resolver;
            for (const Context& device : devices) {
                state.add(device);
            }
            state.cache.emplace(state.pds, resolver, options.cache);
        });
        return filled ? std::move(made)
                      : Result<std::shared_ptr<EndpointState>>(filled.error_info());
    }

  private:
    [[nodiscard]] static const char* refusal(std::size_t devices,
                                             const EndpointOptions& options) noexcept {
        if (devices == 0 || devices > max_rails) {
            return "an endpoint has 1 to 4 devices";
        }
        if (options.depth == 0 || options.depth > 65535) {
            return "depth is from 1 to 65535 requests";
        }
        if (options.eager_limit > 1048576) {
            return "eager_limit is up to 1 MiB";
        }
        if (options.eager_slots < 4 || options.eager_slots > 16384) {
            return "eager_slots is from 4 to 16384 messages";
        }
        if (options.inline_data > max_inline) {
            return "inline_data is up to 512 bytes";
        }
        if (options.heartbeat.count() <= 0 || options.timeout.count() < 0 ||
            options.handshake.count() <= 0 || options.linger.count() < 0) {
            return "heartbeat and handshake must be more than 0 ms, timeout and linger must not be "
                   "negative";
        }
        return nullptr;
    }

    void add(const Context& device) {
        const ibv_device_attr& attributes = device.attributes().native.orig_attr;
        max_mr_size = std::min<std::uint64_t>(max_mr_size, attributes.max_mr_size);
        max_message = std::min<std::uint64_t>(max_message, device.port(options.port).max_msg_sz);
        max_send_wr =
            std::min(max_send_wr, static_cast<std::uint32_t>(std::max(attributes.max_qp_wr, 1)));
        pds.emplace_back(device);
    }
};

} // namespace rdmabuf::transport::detail
