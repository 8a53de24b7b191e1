// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

/// Two ends of a connection in this process.
class MessageLoop {
  public:
    MessageLoop() = default;
    MessageLoop(const MessageLoop&) = delete;
    MessageLoop& operator=(const MessageLoop&) = delete;
    virtual ~MessageLoop() = default;

    /// Posts a receive, sends one message of @p size bytes, and tests both requests until they have
    /// completed. Repeats this @p count times.
    virtual void run(std::size_t size, long count) = 0;
};

/// @throws std::exception
std::unique_ptr<MessageLoop> make_library_loop(std::size_t largest);
/// Makes a loop whose run() calls iput_list() with lists of 256 blocks, in place of messages. One
/// of its "messages" is a block. @throws std::exception
/// @param prepared  true if run() calls iput_prepared_list() instead, with a list that is checked
///                  only once, by prepare_put_list()
std::unique_ptr<MessageLoop> make_list_loop(std::size_t largest, bool prepared);
/// Uses UCP with the transport rc_verbs. @throws std::exception
std::unique_ptr<MessageLoop> make_ucx_loop(std::size_t largest);
