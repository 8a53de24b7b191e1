// SPDX-License-Identifier: BSD-3-Clause
#include "settings.hpp"

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "log.hpp"

namespace nccl_net {
namespace {

std::string text_of(const char* name) {
    const char* const value = std::getenv(name); // NOLINT(concurrency-mt-unsafe)
    return value != nullptr ? value : "";
}

/// Returns the number in an environment variable; std::nullopt if the variable is not set, is
/// negative (NCCL's value for "not set"), or is invalid.
template <class Number>
std::optional<Number> number_of(const char* name,
                                unsigned max = std::numeric_limits<Number>::max()) {
    const std::string text = text_of(name);
    if (text.empty()) {
        return std::nullopt;
    }
    errno = 0;
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 0);
    if (errno != 0 || *end != '\0' || (value > 0 && static_cast<unsigned long>(value) > max)) {
        log::warn("init", std::string(name) + "=" + text +
                              " is ignored: it is not a number up to " + std::to_string(max));
        return std::nullopt;
    }
    return value < 0 ? std::nullopt : std::optional(static_cast<Number>(value));
}

} // namespace

Settings Settings::read() {
    Settings settings;
    settings.devices = text_of("RDMABUF_NCCL_DEVICES");
    settings.listen = text_of("RDMABUF_NCCL_LISTEN");
    settings.nccl_exports = number_of<std::uint8_t>("RDMABUF_NCCL_DMABUF").value_or(0) != 0;
    settings.relaxed_ordering =
        number_of<std::uint8_t>("NCCL_IB_PCI_RELAXED_ORDERING").value_or(2) != 0;
    settings.merge_devices = number_of<std::uint8_t>("NCCL_IB_MERGE_NICS").value_or(1) != 0;
    settings.traffic_class = number_of<std::uint8_t>("NCCL_IB_TC");
    settings.service_level = number_of<std::uint8_t>("NCCL_IB_SL", 15);
    settings.gid_index = number_of<std::uint8_t>("NCCL_IB_GID_INDEX");
    settings.pkey_index = number_of<std::uint16_t>("NCCL_IB_PKEY").value_or(settings.pkey_index);
    settings.ack_timeout =
        number_of<std::uint8_t>("NCCL_IB_TIMEOUT", 31).value_or(settings.ack_timeout);
    settings.retry_count =
        number_of<std::uint8_t>("NCCL_IB_RETRY_CNT", 7).value_or(settings.retry_count);
    return settings;
}

bool Settings::uses_device(const std::string& name) const {
    if (devices.empty()) {
        return true;
    }
    std::istringstream names(devices);
    for (std::string one; std::getline(names, one, ',');) {
        if (one == name) {
            return true;
        }
    }
    return false;
}

} // namespace nccl_net
