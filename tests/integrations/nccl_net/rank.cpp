// SPDX-License-Identifier: BSD-3-Clause
#include "rank.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "waiting.hpp"

namespace nccl_net_test {

using rdmabuf::testing::eventually;

namespace {

/// Groups that one end has under way on a connection.
constexpr std::size_t window = 3;

void require(bool condition, const char* what) {
    if (!condition) {
        throw std::runtime_error(what + ("\n" + take_log()));
    }
}
void done(Result result, const char* what) {
    require(result == Result::success, what);
}

/// Memory for a window of groups, of every kind at both ends of some connection.
class Memory {
  public:
    Memory(Net& net, void* comm, bool dmabuf) : net_(net), comm_(comm), dmabuf_(dmabuf) {
        const int fd = dmabuf ? ::memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
        require(!dmabuf || ::ftruncate(fd, size) == 0, "ftruncate");
        void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                    dmabuf ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
        require(mapped != MAP_FAILED, "mmap");
        data_ = static_cast<std::byte*>(mapped);
        done(dmabuf ? net.register_dmabuf(comm, data_, size, 0, fd, handle_)
                    : net.register_memory(comm, data_, size, abi::pointer_host, handle_),
             "registration");
        if (dmabuf) {
            ::close(fd);
        }
    }
    ~Memory() {
        net_.deregister_memory(comm_, handle_);
        ::munmap(data_, size);
    }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] bool dmabuf() const { return dmabuf_; }
    [[nodiscard]] void* handle() const { return handle_; }
    /// Where a message of a group lies.
    [[nodiscard]] std::byte* at(std::size_t group, std::size_t message) const {
        return data_ + (group % window * Plan::most + message) * Plan::room;
    }

  private:
    static constexpr std::size_t size = window * Plan::most * Plan::room;

    Net& net_;
    void* comm_;
    bool dmabuf_;
    std::byte* data_ = nullptr;
    void* handle_ = nullptr;
};

} // namespace

Plan::Plan(unsigned which) : number(which) {
    std::mt19937 random(which);
    constexpr std::array<std::size_t, 9> sizes{0, 1, 8, 128, 4096, 8192, 8193, 40001, room};
    for (std::size_t group = 0; group < groups; ++group) {
        std::vector<Message> list(1 + random() % most);
        for (Message& message : list) {
            message = {.tag = static_cast<int>(random() % 5),
                       .size = sizes[random() % sizes.size()]};
        }
        messages.push_back(std::move(list));
    }
}

std::byte Plan::byte(std::size_t group, std::size_t message, std::size_t i) const {
    return static_cast<std::byte>(std::size_t{number} * 31 + group * 7 + message * 3 + i * 11 +
                                  i / 251);
}

/// One end that sends. The messages of a group go in any order, but for those of one tag.
class Rank::Sending {
  public:
    Sending(Net& net, void* comm, unsigned number)
        : net_(net),
          comm_(comm),
          plan_(number),
          memory_(net, comm, number % 2 == 0),
          random_(number + 1000) {}
    ~Sending() { net_.close_send(comm_); }
    Sending(const Sending&) = delete;
    Sending& operator=(const Sending&) = delete;

    [[nodiscard]] bool done() const { return begun_ == Plan::groups && requests_.empty(); }

    void go_on() {
        if (order_.empty() && begun_ < Plan::groups && has_room()) {
            prepare();
        }
        while (!order_.empty() && begin(order_.back())) {
            order_.pop_back();
            begun_ += order_.empty() ? 1 : 0;
        }
        test();
    }

  private:
    struct Begun {
        void* request;
        std::size_t group;
        std::size_t message;
    };

    /// Returns true if every request of the oldest group in the window is done.
    [[nodiscard]] bool has_room() const {
        return std::ranges::all_of(
            requests_, [this](const Begun& request) { return request.group + window > begun_; });
    }
    void prepare() {
        const auto& messages = plan_.messages[begun_];
        for (std::size_t message = 0; message < messages.size(); ++message) {
            std::byte* const at = memory_.at(begun_, message);
            for (std::size_t i = 0; i < messages[message].size; ++i) {
                at[i] = plan_.byte(begun_, message, i);
            }
        }
        order_.resize(messages.size());
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::ranges::shuffle(order_, random_);
        // The last one goes first.
        for (std::size_t one = 0; one < order_.size(); ++one) {
            for (std::size_t other = one + 1; other < order_.size(); ++other) {
                if (messages[order_[one]].tag == messages[order_[other]].tag &&
                    order_[one] < order_[other]) {
                    std::swap(order_[one], order_[other]);
                }
            }
        }
    }
    bool begin(std::size_t message) {
        const Plan::Message& what = plan_.messages[begun_][message];
        void* request = nullptr;
        nccl_net_test::done(net_.isend(comm_, memory_.at(begun_, message), what.size, what.tag,
                                       memory_.handle(), request),
                            "isend");
        if (request == nullptr) {
            return false;
        }
        requests_.push_back({request, begun_, message});
        return true;
    }
    void test() {
        std::ranges::shuffle(requests_, random_);
        std::erase_if(requests_, [this](const Begun& begun) {
            int done = 0;
            int size = -1;
            nccl_net_test::done(net_.test(begun.request, done, &size), "test of a send");
            require(done == 0 || static_cast<std::size_t>(size) ==
                                     plan_.messages[begun.group][begun.message].size,
                    "a send of another size");
            return done != 0;
        });
    }

    Net& net_;
    void* comm_;
    Plan plan_;
    Memory memory_;
    std::mt19937 random_;
    std::size_t begun_ = 0;
    std::vector<std::size_t> order_;
    std::vector<Begun> requests_;
};

/// One end that receives: a group at a time as one request, and a flush of what came into dma-bufs.
class Rank::Receiving {
  public:
    Receiving(Net& net, void* comm, unsigned number)
        : net_(net), comm_(comm), plan_(number), memory_(net, comm, number % 2 == 0) {}
    ~Receiving() { net_.close_receive(comm_); }
    Receiving(const Receiving&) = delete;
    Receiving& operator=(const Receiving&) = delete;

    [[nodiscard]] bool done() const { return begun_ == Plan::groups && requests_.empty(); }

    void go_on() {
        if (begun_ < Plan::groups &&
            (requests_.empty() || requests_.front().group + window > begun_)) {
            begin();
        }
        // The newest first; the oldest leaves its place in the window.
        for (std::size_t i = requests_.size(); i-- > 0;) {
            test(requests_[i]);
        }
        while (!requests_.empty() && requests_.front().request == nullptr) {
            requests_.erase(requests_.begin());
        }
    }

  private:
    struct Begun {
        void* request;
        std::size_t group;
        bool flushing;
    };

    void begin() {
        const auto& messages = plan_.messages[begun_];
        std::vector<void*> data;
        std::vector<int> tags;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            data.push_back(memory_.at(begun_, i));
            std::fill_n(memory_.at(begun_, i), Plan::room, nothing);
            tags.push_back(messages[i].tag);
        }
        void* request = nullptr;
        nccl_net_test::done(
            net_.irecv(comm_, data, std::vector<std::size_t>(data.size(), Plan::room), tags,
                       std::vector<void*>(data.size(), memory_.handle()), request),
            "irecv");
        if (request != nullptr) {
            requests_.push_back({request, begun_++, false});
        }
    }
    void test(Begun& begun) {
        if (begun.request == nullptr) {
            return;
        }
        int done = 0;
        std::array<int, Plan::most> sizes{};
        nccl_net_test::done(net_.test(begun.request, done, begun.flushing ? nullptr : sizes.data()),
                            begun.flushing ? "test of a flush" : "test of a receive");
        if (done == 0) {
            return;
        }
        if (!std::exchange(begun.flushing, true)) {
            begun.request = flush(begun.group, sizes);
        } else {
            begun.request = nullptr;
        }
        if (begun.request == nullptr) {
            compare(begun.group);
        }
    }
    [[nodiscard]] void* flush(std::size_t group, const std::array<int, Plan::most>& sizes) {
        const auto& messages = plan_.messages[group];
        std::vector<void*> data;
        bool any = false;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            require(static_cast<std::size_t>(sizes[i]) == messages[i].size,
                    "a message of another size");
            data.push_back(memory_.at(group, i));
            any = any || sizes[i] > 0;
        }
        void* request = nullptr;
        nccl_net_test::done(
            net_.iflush(comm_, data, {sizes.begin(), sizes.begin() + std::ssize(messages)},
                        std::vector<void*>(data.size(), memory_.handle()), request),
            "iflush");
        require((request != nullptr) == (any && memory_.dmabuf()), "to flush, or not");
        return request;
    }
    void compare(std::size_t group) const {
        const auto& messages = plan_.messages[group];
        for (std::size_t message = 0; message < messages.size(); ++message) {
            const std::byte* const at = memory_.at(group, message);
            std::size_t i = 0;
            while (i < Plan::room &&
                   at[i] ==
                       (i < messages[message].size ? plan_.byte(group, message, i) : nothing)) {
                ++i;
            }
            if (i < Plan::room) {
                throw std::runtime_error("byte " + std::to_string(i) + " of message " +
                                         std::to_string(message) + " of group " +
                                         std::to_string(group) + " is another");
            }
        }
    }

    /// Where nothing was received.
    static constexpr std::byte nothing{0xee};

    Net& net_;
    void* comm_;
    Plan plan_;
    Memory memory_;
    std::size_t begun_ = 0;
    std::vector<Begun> requests_;
};

Rank::Rank(Net& net, int socket, unsigned rank, unsigned connections)
    : net_(net), socket_(socket), rank_(rank), connections_(connections) {}

Rank::~Rank() = default;

void Rank::connect() {
    struct One {
        Handle handle{};
        void* listener = nullptr;
        void* send = nullptr;
        void* receive = nullptr;
    };
    std::vector<One> all(connections_);
    for (One& one : all) {
        done(net_.listen(0, one.handle, one.listener), "listen");
        require(::send(socket_, one.handle.data(), one.handle.size(), MSG_NOSIGNAL) ==
                    std::ssize(one.handle),
                "the other rank is gone");
    }
    for (One& one : all) {
        require(::recv(socket_, one.handle.data(), one.handle.size(), MSG_WAITALL) ==
                    std::ssize(one.handle),
                "the other rank says nothing");
    }
    const auto missing = [](const One& one) {
        return one.send == nullptr || one.receive == nullptr;
    };
    const auto connect_more = [&] {
        for (One& one : all) {
            if (one.send == nullptr) {
                done(net_.connect(0, one.handle, one.send), "connect");
            }
            if (one.receive == nullptr) {
                done(net_.accept(one.listener, one.receive), "accept");
            }
        }
    };
    require(eventually([&] { return std::ranges::none_of(all, missing); }, connect_more),
            "no connection");
    for (unsigned i = 0; i < connections_; ++i) {
        done(net_.close_listen(all[i].listener), "closeListen");
        sending_.push_back(std::make_unique<Sending>(net_, all[i].send, i + rank_ * connections_));
        receiving_.push_back(
            std::make_unique<Receiving>(net_, all[i].receive, i + (1 - rank_) * connections_));
    }
}

void Rank::run() {
    connect();
    const auto is_done = [](const auto& one) { return one->done(); };
    const auto all_done = [&] {
        return std::ranges::all_of(sending_, is_done) && std::ranges::all_of(receiving_, is_done);
    };
    const auto step = [&] {
        for (const auto& one : receiving_) {
            one->go_on();
        }
        for (const auto& one : sending_) {
            one->go_on();
        }
    };
    require(eventually(all_done, step), "it does not go on");
    sending_.clear();
    receiving_.clear();
}

} // namespace nccl_net_test
