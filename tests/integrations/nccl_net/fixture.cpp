// SPDX-License-Identifier: BSD-3-Clause
#include "fixture.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "waiting.hpp"

namespace nccl_net_test {

NcclNet::NcclNet() {
    static_cast<void>(take_log());
}

NcclNet::~NcclNet() {
    while (!pairs_.empty()) {
        close(Pair(pairs_.back()));
    }
    if (net_) {
        net_->finalize();
        EXPECT_TRUE(plugin_->unload()) << "the library cannot be unloaded";
    }
}

Result NcclNet::load(int traffic_class, int version) {
    plugin_ = std::make_unique<LoadedPlugin>(plugin_path);
    net_ = plugin_->net(version);
    return net_->init(traffic_class);
}

std::vector<ibv_qp_attr> NcclNet::connected() {
    std::vector<ibv_qp_attr> attributes;
    for (const rdmabuf::testing::QpModification& modification :
         rdmabuf::testing::record().modifications) {
        if (modification.attributes.qp_state == IBV_QPS_RTR) {
            attributes.push_back(modification.attributes);
        }
    }
    return attributes;
}

std::set<int> NcclNet::traffic_classes() {
    std::set<int> classes;
    for (const ibv_qp_attr& attributes : connected()) {
        classes.insert(attributes.ah_attr.grh.traffic_class);
    }
    return classes;
}

NcclNet::Pair NcclNet::connect(int device) {
    Pair pair;
    Handle handle{};
    EXPECT_EQ(net().listen(device, handle, pair.listener), Result::success);
    meet(pair, handle, device);
    pairs_.push_back(pair);
    return pair;
}

void NcclNet::meet(Pair& pair, Handle handle, int device) {
    until([&] {
        if (pair.send == nullptr) {
            EXPECT_EQ(net().connect(device, handle, pair.send), Result::success);
        }
        if (pair.receive == nullptr) {
            EXPECT_EQ(net().accept(pair.listener, pair.receive), Result::success);
        }
        return pair.send != nullptr && pair.receive != nullptr;
    });
}

void NcclNet::close_send(const Pair& pair) {
    if (void* const comm = std::exchange(find(pair).send, nullptr); comm != nullptr) {
        EXPECT_EQ(net().close_send(comm), Result::success);
    }
}

void NcclNet::close_receive(const Pair& pair) {
    if (void* const comm = std::exchange(find(pair).receive, nullptr); comm != nullptr) {
        EXPECT_EQ(net().close_receive(comm), Result::success);
    }
}

void NcclNet::close(const Pair& pair) {
    close_send(pair);
    close_receive(pair);
    EXPECT_EQ(net().close_listen(pair.listener), Result::success);
    std::erase_if(pairs_, [&](const Pair& one) { return one.listener == pair.listener; });
}

NcclNet::Pair& NcclNet::find(const Pair& pair) {
    return *std::ranges::find(pairs_, pair.listener, &Pair::listener);
}

void NcclNet::run(Transfer& one, Transfer& other) {
    until([&] {
        one.send.progress();
        other.send.progress();
        one.receive.progress();
        other.receive.progress();
        return one.done() && other.done();
    });
}

NcclNet::Ticket NcclNet::send(void* comm, const Memory& memory, std::size_t offset,
                              std::size_t size, int tag) {
    void* request = nullptr;
    until([&] {
        EXPECT_EQ(net().isend(comm, memory.data(offset), size, tag, memory.handle(), request),
                  Result::success);
        return request != nullptr;
    });
    return follow(request);
}

NcclNet::Ticket NcclNet::receive(void* comm, const Memory& memory, std::size_t offset,
                                 std::size_t size, int tag) {
    return receive(comm, {memory.data(offset)}, {size}, {tag}, {memory.handle()});
}

NcclNet::Ticket NcclNet::receive(void* comm, const std::vector<void*>& data,
                                 const std::vector<std::size_t>& sizes,
                                 const std::vector<int>& tags, const std::vector<void*>& memories) {
    void* request = nullptr;
    until([&] {
        EXPECT_EQ(net().irecv(comm, data, sizes, tags, memories, request), Result::success);
        return request != nullptr;
    });
    return follow(request, data.size());
}

NcclNet::Ticket NcclNet::follow(void* request, std::size_t count) {
    auto ticket = std::make_shared<Request>();
    ticket->request = request;
    ticket->sizes.assign(count, -1);
    requests_.push_back(ticket);
    return ticket;
}

void NcclNet::go_on() {
    for (std::size_t i = requests_.size(); i-- > 0;) {
        Request& request = *requests_[i];
        int done = -1;
        request.result = net().test(request.request, done, request.sizes.data());
        request.done = done != 0 || request.result != Result::success;
    }
    std::erase_if(requests_, [](const Ticket& ticket) { return ticket->done; });
}

std::vector<int> NcclNet::finish(const Ticket& ticket) {
    until([&] { return ticket->done; });
    return ticket->sizes;
}

void NcclNet::until(const std::function<bool()>& done) {
    if (!rdmabuf::testing::eventually([&] { return done() || HasFailure(); }, [&] { go_on(); }) ||
        HasFailure()) {
        throw std::runtime_error("it does not go on");
    }
}

} // namespace nccl_net_test
