// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// The result of a probe, which tests whether a feature can be used on this machine. If the feature
/// cannot be used, the result contains the reason and, if possible, a remedy.
struct Availability {
    bool available = false;
    /// The reason for the result, without a full stop at the end. The text can also be set if
    /// `available` is true, for example "/dev/udmabuf, up to 64 MiB a buffer".
    std::string reason;
    /// Describes how to make the feature available. Empty if the feature is available or cannot be
    /// made available.
    std::string remedy;

    [[nodiscard]] static Availability yes(std::string reason = {}) {
        return {.available = true, .reason = std::move(reason), .remedy = {}};
    }
    [[nodiscard]] static Availability no(std::string reason, std::string remedy = {}) {
        return {.available = false, .reason = std::move(reason), .remedy = std::move(remedy)};
    }

    explicit operator bool() const noexcept { return available; }
};

/// Returns "yes", "yes: reason", "no", "no: reason" or "no: reason; remedy".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Availability& availability);

} // namespace rdmabuf
