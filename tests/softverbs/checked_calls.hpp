// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace softverbs_test {

/// Returns @p object. Throws an exception with errno if it is null. For processes without gtest.
template <class T>
T* made(T* object, const char* what) {
    if (object == nullptr) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    }
    return object;
}

/// Throws an exception if @p error is not 0.
inline void done(int error, const char* what) {
    if (error != 0) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(error));
    }
}

/// Exchanges values with another process.
class Conversation {
  public:
    /// @param socket  stream socket to the other process
    explicit Conversation(int socket) : socket_(socket) {}

    template <class T>
    void tell(const T& value) const {
        if (::send(socket_, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) {
            throw std::runtime_error("the other process has ended");
        }
    }
    template <class T>
    [[nodiscard]] T hear() const {
        T value{};
        if (::recv(socket_, &value, sizeof value, MSG_WAITALL) != sizeof value) {
            throw std::runtime_error("the other process says nothing");
        }
        return value;
    }
    /// Waits until the other process calls meet(), too.
    void meet() const {
        tell('m');
        static_cast<void>(hear<char>());
    }

  private:
    int socket_;
};

} // namespace softverbs_test
