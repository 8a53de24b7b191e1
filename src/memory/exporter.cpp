// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <rdmabuf/exporter.hpp>

#include "memory/checks.hpp"

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

void Buffer::Memory::copy_in(std::size_t offset, std::span<const std::byte> source) {
    const CpuAccess access(sync_fd(), mapping(), CpuAccessMode::write);
    std::ranges::copy(source, access.bytes().subspan(offset).begin());
}

void Buffer::Memory::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    const CpuAccess access(sync_fd(), mapping(), CpuAccessMode::read);
    std::ranges::copy(access.bytes().subspan(offset, destination.size()), destination.begin());
}

void Buffer::copy_in(std::size_t offset, std::span<const std::byte> source) const {
    detail::check_inside(offset, source.size(), size(), "copy_in", "the buffer");
    if (!source.empty()) {
        memory_->copy_in(offset, source);
    }
}

void Buffer::copy_out(std::size_t offset, std::span<std::byte> destination) const {
    detail::check_inside(offset, destination.size(), size(), "copy_out", "the buffer");
    if (!destination.empty()) {
        memory_->copy_out(offset, destination);
    }
}

} // namespace rdmabuf
