// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>

/// The measured end: connections to several peers, each of which is another process.
class ScaleSystem {
  public:
    ScaleSystem() = default;
    ScaleSystem(const ScaleSystem&) = delete;
    ScaleSystem& operator=(const ScaleSystem&) = delete;
    virtual ~ScaleSystem() = default;

    /// Connects until there are @p count connections.
    virtual void connect(std::size_t count) = 0;
    /// Polls for completions and messages once.
    virtual void progress() = 0;
    /// Sends a message of 8 bytes on each of `busy_connections` connections, which are spread over
    /// all connections, and receives the peers' replies.
    virtual void exchange() = 0;

    static constexpr std::size_t busy_connections = 8;
};

/// The functions to measure one of the compared systems (rdmabuf or UCX). If they fail, they throw
/// exceptions derived from std::exception.
struct ScaleFunctions {
    const char* name;
    /// @param sockets  one connected socket for each peer
    std::unique_ptr<ScaleSystem> (*make)(std::span<const int> sockets);
    /// Runs a peer: connects up to @p count connections, and returns each message to its sender
    /// until the other end of @p socket is closed.
    void (*run_peer)(int socket, std::size_t count);
};

extern const ScaleFunctions library_scale;
/// UCP with the transport rc_verbs. The functions are null in a build without UCX.
extern const ScaleFunctions ucx_scale;
