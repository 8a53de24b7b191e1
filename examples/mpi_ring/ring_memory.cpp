// SPDX-License-Identifier: BSD-3-Clause
#include "ring_memory.hpp"

#include <cstdint>

#include <rdmabuf/registration.hpp>

#include "support/transport.hpp"

namespace mpi_ring {

using rdmabuf::CpuAccessMode;
using rdmabuf::transport::Endpoint;

namespace {

std::span<std::byte> part(std::span<std::byte> bytes, Piece piece) noexcept {
    return bytes.subspan(piece.offset, piece.length);
}

} // namespace

RingMemory::RingMemory(const Endpoint& endpoint, const rdmabuf::Resolver& resolver,
                       examples::MemoryType type, std::size_t size) {
    if (type == examples::MemoryType::host) {
        host_.resize(size);
    } else {
        buffer_ = resolver.allocator(examples::exporter_name(type))->allocate(size);
    }
    const void* address =
        buffer_ ? reinterpret_cast<const void*>(buffer_->address()) : host_.data();
    registered_ = examples::value_of(endpoint.register_memory(address, size));
    // The cache knows by which path, except of memory that takes several regions.
    const auto lease = endpoint.cache().find(registered_->address(), size, registered_->access());
    description_ = std::string(to_string(type)) + " memory, path " +
                   (lease ? to_string(lease.registration().path()) : "of several regions");
}

void* RingMemory::at(std::size_t offset) const noexcept {
    return reinterpret_cast<void*>(registered_->address() + offset);
}

void RingMemory::write(Piece piece, const Change& change) {
    if (!buffer_) {
        change(part(host_, piece));
    } else if (buffer_->mapped()) {
        const rdmabuf::CpuAccess guard = buffer_->cpu_access(CpuAccessMode::write);
        change(part(guard.bytes(), piece));
    } else {
        std::vector<std::byte> copy(piece.length);
        change(copy);
        buffer_->copy_in(piece.offset, copy);
    }
}

void RingMemory::read(Piece piece, const Look& look) {
    if (!buffer_) {
        look(part(host_, piece));
    } else if (buffer_->mapped()) {
        const rdmabuf::CpuAccess guard = buffer_->cpu_access(CpuAccessMode::read);
        look(part(guard.bytes(), piece));
    } else {
        look(copy_of(piece));
    }
}

void RingMemory::combine(Piece from, Piece into, const Combine& combine) {
    if (!buffer_) {
        combine(part(host_, from), part(host_, into));
    } else if (buffer_->mapped()) {
        const rdmabuf::CpuAccess guard = buffer_->cpu_access(CpuAccessMode::read_write);
        combine(part(guard.bytes(), from), part(guard.bytes(), into));
    } else {
        std::vector<std::byte> copy = copy_of(into);
        combine(copy_of(from), copy);
        buffer_->copy_in(into.offset, copy);
    }
}

std::vector<std::byte> RingMemory::copy_of(Piece piece) const {
    std::vector<std::byte> copy(piece.length);
    buffer_->copy_out(piece.offset, copy);
    return copy;
}

} // namespace mpi_ring
