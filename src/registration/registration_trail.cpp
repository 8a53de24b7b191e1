// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/error.hpp>
#include <rdmabuf/registration_trail.hpp>

namespace rdmabuf {

const char* to_string(RegistrationPath path) noexcept {
    switch (path) {
        case RegistrationPath::dmabuf:
            return "dmabuf";
        case RegistrationPath::dmabuf_data_direct:
            return "dmabuf_data_direct";
        case RegistrationPath::peermem:
            return "peermem";
        case RegistrationPath::host:
            return "host";
        case RegistrationPath::on_demand:
            return "on_demand";
    }
    return "unknown";
}

std::string to_string(const Attempt& attempt) {
    std::string text = to_string(attempt.path);
    text.append(": ").append(attempt.call);
    if (!attempt.device.empty()) {
        text.append(" on ").append(attempt.device);
    }
    if (!attempt.exporter.empty()) {
        text.append(", memory of ").append(attempt.exporter);
        if (attempt.mapping == MappingKind::pcie) {
            text += " mapped for PCIe";
            if (*attempt.reason != '\0') {
                text.append(" (").append(attempt.reason).append(")");
            }
        }
    }
    text.append(": ").append(attempt.worked() ? "registered" : describe_errno(attempt.error));
    if (!attempt.meaning.empty()) {
        text.append(": ").append(attempt.meaning);
    }
    if (!attempt.remedy.empty()) {
        text.append("; ").append(attempt.remedy);
    }
    return text;
}

std::string to_string(const Trail& trail) {
    if (trail.empty()) {
        return "nothing was tried.";
    }
    std::string text;
    for (const Attempt& attempt : trail) {
        text.append(text.empty() ? "" : " ").append(to_string(attempt)).append(".");
    }
    return text;
}

} // namespace rdmabuf
