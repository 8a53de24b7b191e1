// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

#include <rdmabuf/transport/detail/spin_wait.hpp>
#include <rdmabuf/transport/wait_any.hpp>

namespace rdmabuf::transport {

namespace {

detail::EndpointState* owner_of(const Pending& pending) noexcept {
    return pending.channel != nullptr ? pending.channel->endpoint() : pending.endpoint->state();
}

bool is_done(const Pending& pending) noexcept {
    return pending.request.index != Request::empty_index &&
           owner_of(pending)->is_done(pending.request);
}

} // namespace

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
            detail::EndpointState* const owner = owner_of(pending);
            several_endpoints = several_endpoints || (endpoint != nullptr && endpoint != owner);
            endpoint = owner;
            completion = pending.channel != nullptr ? pending.channel->test(pending.request)
                                                    : pending.endpoint->test(pending.request);
            if (completion.done) {
                pending.request = {}; // test() does not reset an invalid request.
                return i;
            }
        }
        // The test() of one request may also have completed a request that stands before it in
        // `requests`. Do not sleep then: no event for that request would end the sleep.
        if (std::ranges::any_of(requests, is_done)) {
            continue;
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
