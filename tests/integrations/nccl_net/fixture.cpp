// SPDX-License-Identifier: BSD-3-Clause
#include "fixture.hpp"

#include <sys/mman.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "waiting.hpp"

namespace nccl_net_test {

using rdmabuf::testing::make_dmabuf;

namespace {

/// NCCL registers memory on the thread that connects and closes, and moves it on another. What a
/// thread leaves behind keeps the library loaded for as long as the thread lives.
template <class Work>
void on_another_thread(const Work& work) {
    std::thread(work).join();
}

} // namespace

NcclNet::NcclNet() {
    static_cast<void>(take_log());
}

NcclNet::~NcclNet() {
    on_another_thread([&] {
        for (const Pair& pair : pairs_) {
            if (pair.send != nullptr) {
                EXPECT_EQ(net().close_send(pair.send), Result::success);
            }
            EXPECT_EQ(net().close_receive(pair.receive), Result::success);
            EXPECT_EQ(net().close_listen(pair.listener), Result::success);
        }
    });
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
    until([&] {
        if (pair.send == nullptr) {
            EXPECT_EQ(net().connect(device, handle, pair.send), Result::success);
        }
        if (pair.receive == nullptr) {
            EXPECT_EQ(net().accept(pair.listener, pair.receive), Result::success);
        }
        return pair.send != nullptr && pair.receive != nullptr;
    });
    pairs_.push_back(pair);
    return pair;
}

void NcclNet::close_send(const Pair& pair) {
    EXPECT_EQ(net().close_send(pair.send), Result::success);
    for (Pair& one : pairs_) {
        if (one.send == pair.send) {
            one.send = nullptr;
        }
    }
}

NcclNet::Memory::Memory(Net& net, void* comm, std::size_t size, bool dmabuf)
    : net_(net), comm_(comm), size_(size) {
    rdmabuf::UniqueFd fd;
    if (dmabuf) {
        fd = make_dmabuf(size);
    }
    void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                dmabuf ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd.get(), 0);
    if (mapped == MAP_FAILED) {
        throw std::runtime_error("mmap");
    }
    data_ = static_cast<std::byte*>(mapped);
    // The descriptor is closed behind it, as NCCL does.
    on_another_thread([&] {
        EXPECT_EQ(dmabuf ? net.register_dmabuf(comm, data_, size, 0, fd.get(), handle_)
                         : net.register_memory(comm, data_, size, abi::pointer_host, handle_),
                  Result::success)
            << take_log();
    });
}

NcclNet::Memory::~Memory() {
    on_another_thread([&] { EXPECT_EQ(net_.deregister_memory(comm_, handle_), Result::success); });
    ::munmap(data_, size_);
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
