// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Helper functions of the examples that use rdmabuf/transport.hpp.

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

namespace examples {

/// Allocates @p size bytes with the exporter @p name. If @p name is empty, allocates with the first
/// available exporter that can allocate.
/// @throws rdmabuf::Error with the reason if no such exporter can allocate
inline rdmabuf::Buffer allocate(const rdmabuf::Resolver& resolver, const std::string& name,
                                std::size_t size) {
    if (!name.empty()) {
        return resolver.allocator(name)->allocate(size);
    }
    for (const auto& exporter : resolver.exporters()) {
        auto* allocator = dynamic_cast<rdmabuf::Allocator*>(exporter.get());
        if (allocator != nullptr && allocator->availability()) {
            return allocator->allocate(size);
        }
    }
    throw rdmabuf::Error(ENODEV, "allocate", "no exporter can allocate memory on this machine");
}

/// Returns the value of @p result. @throws std::runtime_error with the reason if @p result is an
/// error
template <class T>
[[nodiscard]] T value_of(rdmabuf::Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.message());
    }
    return *std::move(result);
}

/// Waits until a request is done. EndpointOptions::timeout limits the time.
/// @param begun  the return value of the call that began the request
/// @throws std::system_error if @p begun is an error, or if the request failed
inline void finish(rdmabuf::transport::Channel& channel, std::error_code begun,
                   rdmabuf::transport::Request& request) {
    const auto error = begun ? begun : channel.wait(request, rdmabuf::wait_forever).error;
    if (error) {
        throw std::system_error(error, "the transfer");
    }
}

} // namespace examples
