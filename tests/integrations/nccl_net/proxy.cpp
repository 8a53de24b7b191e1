// SPDX-License-Identifier: BSD-3-Clause
#include "proxy.hpp"

#include <stdexcept>
#include <string>

namespace nccl_net_test {
namespace {

/// The contents of slots in which nothing was received.
constexpr std::byte nothing{0xee};

void done(Result result, const char* what) {
    require(result == Result::success, what);
}

} // namespace

std::size_t Operation::slot() const {
    switch (protocol) {
        case Protocol::ll:
            return 8192;
        case Protocol::ll128:
            return 30720;
        default:
            return 131072;
    }
}

std::size_t Operation::size(std::size_t sub, std::size_t step) const {
    // LL has lines of 16 bytes, and LL128 of 128 bytes.
    const std::size_t line = protocol == Protocol::ll ? 16 : protocol == Protocol::ll128 ? 128 : 1;
    const std::array<std::size_t, 7> sizes{
        slot(), line, slot() - line, 0, slot(), slot() / 3 / line * line, 8 * line};
    return sizes.at((step * 3 + sub + seed) % sizes.size());
}

std::byte Operation::byte(std::size_t sub, std::size_t step, std::size_t i) const {
    return static_cast<std::byte>(std::size_t{31} * seed + step * 7 + sub * 3 + i * 11 + i / 251);
}

std::size_t Operation::messages() const {
    std::size_t count = 0;
    for (std::size_t sub = 0; sub < subs; ++sub) {
        count += steps(sub);
    }
    return count;
}

bool SendProxy::done() const {
    for (std::size_t sub = 0; sub < operation_.subs; ++sub) {
        if (subs_.at(sub).done < operation_.steps(sub)) {
            return false;
        }
    }
    return true;
}

void SendProxy::progress() {
    for (std::size_t i = 0; i < operation_.subs; ++i) {
        Sub& sub = subs_.at(i);
        const std::size_t step = sub.transmitted;
        if (step < operation_.steps(i) && step < sub.done + operation_.depth()) {
            const std::size_t size = operation_.size(i, step);
            std::byte* const data = slots_.at(i, step);
            for (std::size_t at = 0; !sub.ready && at < size; ++at) {
                data[at] = operation_.byte(i, step, at);
            }
            sub.ready = true;
            void*& request = sub.requests.at(step % Operation::slots);
            nccl_net_test::done(
                net_.isend(comm_, data, size, static_cast<int>(i), slots_.handle(), request),
                "isend");
            if (request != nullptr) {
                sub.ready = false;
                ++sub.transmitted;
                continue;
            }
        }
        if (sub.done < sub.transmitted) {
            int finished = 0;
            int size = -1;
            nccl_net_test::done(
                net_.test(sub.requests.at(sub.done % Operation::slots), finished, &size),
                "test of a send");
            if (finished != 0) {
                require(static_cast<std::size_t>(size) == operation_.size(i, sub.done),
                        "a send reports another size");
                ++sub.done;
            }
        }
    }
}

std::size_t ReceiveProxy::subs(std::size_t step) const {
    std::size_t count = 0;
    while (count < operation_.subs && step < operation_.steps(count)) {
        ++count;
    }
    return count;
}

void ReceiveProxy::progress() {
    if (posted_ < operation_.length && posted_ < done_ + operation_.depth()) {
        post();
    }
    if (received_ < posted_) {
        finish_receive();
    }
    if (done_ < received_) {
        void* const request = requests_.at(done_ % Operation::slots);
        int finished = 1;
        if (request != nullptr) {
            nccl_net_test::done(net_.test(request, finished, nullptr), "test of a flush");
        }
        if (finished != 0) {
            compare(done_++);
        }
    }
}

void ReceiveProxy::post() {
    std::vector<void*> data;
    std::vector<int> tags;
    for (std::size_t sub = 0; sub < subs(posted_); ++sub) {
        data.push_back(slots_.at(sub, posted_));
        tags.push_back(static_cast<int>(sub));
        std::fill_n(slots_.at(sub, posted_), operation_.slot(), nothing);
    }
    void*& request = requests_.at(posted_ % Operation::slots);
    nccl_net_test::done(
        net_.irecv(comm_, data, std::vector<std::size_t>(data.size(), operation_.slot()), tags,
                   std::vector<void*>(data.size(), slots_.handle()), request),
        "irecv");
    posted_ += request != nullptr ? 1 : 0;
}

void ReceiveProxy::finish_receive() {
    void*& request = requests_.at(received_ % Operation::slots);
    int finished = 0;
    std::vector<int> sizes(subs(received_));
    nccl_net_test::done(net_.test(request, finished, sizes.data()), "test of a receive");
    if (finished == 0) {
        return;
    }
    std::vector<void*> data;
    bool any = false;
    for (std::size_t sub = 0; sub < sizes.size(); ++sub) {
        require(static_cast<std::size_t>(sizes[sub]) == operation_.size(sub, received_),
                "a message of another size");
        data.push_back(slots_.at(sub, received_));
        any = any || sizes[sub] > 0;
    }
    request = nullptr;
    if (any && slots_.dmabuf() && operation_.protocol == Operation::Protocol::simple) {
        nccl_net_test::done(net_.iflush(comm_, data, sizes,
                                        std::vector<void*>(data.size(), slots_.handle()), request),
                            "iflush");
        require(request != nullptr, "no flush of GPU memory");
    }
    ++received_;
}

void ReceiveProxy::compare(std::size_t step) const {
    for (std::size_t sub = 0; sub < subs(step); ++sub) {
        const std::byte* const data = slots_.at(sub, step);
        const std::size_t size = operation_.size(sub, step);
        for (std::size_t i = 0; i < operation_.slot(); ++i) {
            if (data[i] != (i < size ? operation_.byte(sub, step, i) : nothing)) {
                throw std::runtime_error("byte " + std::to_string(i) + " of step " +
                                         std::to_string(step) + " of sub-operation " +
                                         std::to_string(sub) + " is another");
            }
        }
    }
}

} // namespace nccl_net_test
