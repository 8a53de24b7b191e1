// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstddef>
#include <span>

#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/wait_any.hpp>

namespace rdmabuf::transport {

std::size_t wait_any(std::span<Pending> requests, Completion& completion,
                     std::chrono::milliseconds timeout) noexcept {
    detail::SpinWait spin(timeout);
    for (;;) {
        detail::EndpointState* endpoint = nullptr;
        bool several_endpoints = false;
        for (std::size_t i = 0; i < requests.size(); ++i) {
            Pending& pending = requests[i];
            if (pending.request.index == Request::empty_index) {
                continue;
            }
            detail::EndpointState* const owner = pending.channel != nullptr
                                                     ? pending.channel->endpoint()
                                                     : pending.endpoint->state();
            several_endpoints = several_endpoints || (endpoint != nullptr && endpoint != owner);
            endpoint = owner;
            completion = pending.channel != nullptr ? pending.channel->test(pending.request)
                                                    : pending.endpoint->test(pending.request);
            if (completion.done) {
                pending.request = {}; // test() keeps an invalid request.
                return i;
            }
        }
        const auto sleep = [&](std::chrono::milliseconds left) {
            // Events of other endpoints do not end this sleep. Therefore, if the requests belong to
            // several endpoints, the sleep ends after 1 ms at the latest.
            endpoint->sleep(several_endpoints ? std::chrono::milliseconds(1) : left);
        };
        if (endpoint == nullptr || !spin.wait(sleep)) {
            return requests.size();
        }
    }
}

} // namespace rdmabuf::transport
