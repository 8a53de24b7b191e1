// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

const char* to_string(MemoryKind kind) noexcept {
    switch (kind) {
        case MemoryKind::system:
            return "system";
        case MemoryKind::device:
            return "device";
        case MemoryKind::managed:
            return "managed";
        case MemoryKind::pinned_host:
            return "pinned_host";
    }
    return "unknown";
}

} // namespace rdmabuf
