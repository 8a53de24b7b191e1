// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>

#include <rdmabuf/detail/export.hpp>

namespace rdmabuf {

/// Whether something can be used here and now and, when it cannot, why and what would change that.
struct Availability {
    bool available = false;
    /// What was found, as a sentence without a full stop. Also set when available, where there is
    /// something worth knowing ("/dev/udmabuf, up to 64 MiB a buffer").
    std::string reason;
    /// What to do about it; empty when available or when nothing can be done.
    std::string remedy;

    [[nodiscard]] static Availability yes(std::string reason = {}) {
        return {.available = true, .reason = std::move(reason), .remedy = {}};
    }
    [[nodiscard]] static Availability no(std::string reason, std::string remedy = {}) {
        return {.available = false, .reason = std::move(reason), .remedy = std::move(remedy)};
    }

    explicit operator bool() const noexcept { return available; }
};

/// "yes", "yes: reason", "no: reason" or "no: reason; remedy".
[[nodiscard]] RDMABUF_EXPORT std::string to_string(const Availability& availability);

} // namespace rdmabuf
