// SPDX-License-Identifier: BSD-3-Clause
#pragma once

/// A transport in the style of MPI and NCCL: connections, messages and one-sided operations on host
/// memory or GPU memory. The functions that a program calls for each message are defined in
/// headers, so that the compiler can inline them. The transport throws no exceptions, so it also
/// works in programs that are compiled without exceptions. Sending and receiving rarely allocates
/// memory: pools keep the memory of requests and messages, and grow only if more are in use at a
/// time than before. See docs/transport.md.
///
///     using namespace rdmabuf::transport;
///     auto endpoint = Endpoint::open(Context::open_first(), Resolver::system());
///     auto memory = endpoint->register_memory(gpu_pointer, size);
///
///     // One side listens. The program sends listener->handle() to the other side, for example
///     // through its job launcher.
///     auto listener = endpoint->listen();
///     auto channel = listener->accept(5s);
///     Request request;
///     channel->irecv(*memory, gpu_pointer, size, tag, request);
///     const Completion received = channel->wait(request, wait_forever);
///
///     // The other side connects to the listener that created `handle`.
///     auto channel = endpoint->connect(handle, 5s);
///     channel->isend(*memory, gpu_pointer, size, tag, request);
#include <rdmabuf/transport/channel.hpp>
#include <rdmabuf/transport/connector.hpp>
#include <rdmabuf/transport/endpoint.hpp>
#include <rdmabuf/transport/handle.hpp>
#include <rdmabuf/transport/listener.hpp>
#include <rdmabuf/transport/memory.hpp>
#include <rdmabuf/transport/options.hpp>
#include <rdmabuf/transport/prepared_channel.hpp>
#include <rdmabuf/transport/remote_memory.hpp>
#include <rdmabuf/transport/request.hpp>
#include <rdmabuf/transport/transfer_entry.hpp>
#include <rdmabuf/transport/wait_any.hpp>
