// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// Connections, messages and one-sided operations on memory that may be a GPU's, for transports in
/// the style of MPI and NCCL. Header-only over the rest of the library; throws nothing, so that it
/// works in programs without exceptions; allocates nothing once a channel is there.
///
///     using namespace rdmabuf::transport;
///     auto endpoint = Endpoint::open(Context::open_first(), Resolver::system());
///     auto memory = endpoint->register_memory(gpu_pointer, size);
///
///     // One side; its handle goes to the other by whatever launched both.
///     auto listener = endpoint->listen();
///     auto channel = listener->accept(5s);
///     Request request;
///     channel->irecv(*memory, gpu_pointer, size, tag, request);
///     const Outcome received = channel->wait(request, wait_forever);
///
///     // The other.
///     auto channel = endpoint->connect(handle, 5s);
///     channel->isend(*memory, gpu_pointer, size, tag, request);
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/connector.hpp>
#include <rdmabuf/transport/endpoint.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/listener.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>
