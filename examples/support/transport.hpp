// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// What programs on rdmabuf/transport.hpp need and none is about.

#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/resolver.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/transport.hpp>

namespace examples {

/// Memory of the exporter of that name, or of the first that can make any here when it is empty.
/// @throws rdmabuf::Error with the reason when there is none
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
    throw rdmabuf::Error(ENODEV, "allocate", "no exporter can make memory here");
}

/// What a function made. @throws std::runtime_error with the reason when it did not
template <class T>
[[nodiscard]] T value_of(rdmabuf::Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.message());
    }
    return *std::move(result);
}

/// Waits for a request of a channel whose requests have a timeout.
/// @param begun  what beginning it returned
/// @throws std::system_error when that was an error, or the request has failed
inline void finish(rdmabuf::transport::Channel& channel, std::error_code begun,
                   const rdmabuf::transport::Request& request) {
    const auto error = begun ? begun : channel.wait(request, rdmabuf::wait_forever).error;
    if (error) {
        throw std::system_error(error, "the transfer");
    }
}

} // namespace examples
