// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/endpoint.hpp>
#include <rdmabuf/transport/request.hpp>

namespace rdmabuf::transport {

/// A request, and the channel or endpoint that has started it, for wait_any().
struct Pending {
    /// The channel that has started the request; nullptr for a receive of Endpoint::irecv().
    Channel* channel = nullptr;
    Request request = {};
    /// If `channel` is nullptr: the endpoint that has started the request. Otherwise not used.
    const Endpoint* endpoint = nullptr;
};

/// Tests requests of one or several channels and endpoints until one request is done. Entries whose
/// Request is empty are skipped. The call first polls for a short time and then sleeps.
/// @param completion  set to the Completion of the request that is done; the Request of this entry
///                    is then empty
/// @param timeout     wait_forever for no time limit
/// @return the index of the request that is done; requests.size() if @p timeout has passed or if
///         all entries are empty
[[nodiscard]] RDMABUF_EXPORT std::size_t wait_any(std::span<Pending> requests,
                                                  Completion& completion,
                                                  std::chrono::milliseconds timeout) noexcept;

} // namespace rdmabuf::transport
