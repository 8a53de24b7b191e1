// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/local_node.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>
#include <system_error>

#include "fabric/no_cancellation.hpp"

namespace softverbs::fabric {
namespace {

UniqueFd checked(int fd, const char* what) {
    if (fd < 0) {
        throw std::system_error(errno, std::system_category(),
                                std::string("softverbs cannot open ") + what);
    }
    return UniqueFd(fd);
}

RingSizes checked_sizes(const NodeOptions& options) {
    const RingSizes sizes{options.ring_bytes[0], options.ring_bytes[1]};
    if (!valid(sizes) || options.slots == 0) {
        throw std::system_error(EINVAL, std::system_category(),
                                "softverbs needs a slot, and rings of a power of two from 4 KiB");
    }
    return sizes;
}

} // namespace

std::unique_ptr<Node> Node::open(const NodeOptions& options) {
    return std::make_unique<LocalNode>(options);
}

LocalNode::LocalNode(const NodeOptions& options)
    : rendezvous_(options.directory.empty() ? default_directory() : options.directory),
      ring_sizes_(checked_sizes(options)),
      slots_(options.slots),
      network_(options.network.addresses.empty() ? nullptr
                                                 : std::make_unique<TcpNetwork>(options.network)),
      slot_(rendezvous_, slots_,
            [this](unsigned slot) { return network_ == nullptr || network_->listen(slot); }),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "an epoll")),
      doorbell_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "a doorbell")),
      wake_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "a doorbell")),
      spare_(checked(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null")) {
    context_.pull = pull_wanted();
    context_.epoll = epoll_.get();
    context_.doorbell = doorbell_.get();
    rendezvous_.sweep();
    if (!watch(slot_.listener(), Source::listener) || !watch(doorbell_.get(), Source::doorbell) ||
        (network_ && !watch(network_->descriptor(), Source::network))) {
        throw std::system_error(errno, std::system_category(), "softverbs cannot wait for events");
    }
}

LocalNode::~LocalNode() {
    if (slot_.mine()) {
        for (const auto& link : links_) {
            link->part();
        }
    }
}

void LocalNode::abandon() noexcept {
    // The parent's: only the copies in this process go. Nothing is shut down, removed from the
    // epoll, or unlinked.
    links_.clear();
    clients_.clear();
    if (network_) {
        network_->abandon();
    }
    epoll_.reset();
    doorbell_.reset();
    wake_.reset();
    spare_.reset();
    slot_.abandon();
    rendezvous_.close();
}

Connection* LocalNode::connect(unsigned slot) noexcept {
    const NoCancellation here;
    for (const auto& link : links_) {
        // The slot may have another process by now, before service() has noticed.
        if (link->slot() == slot && link->open() && link->alive()) {
            return link.get();
        }
    }
    if (slot >= slots_) {
        errno = ENOENT;
        return nullptr;
    }
    try {
        return make_link(slot);
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
        return nullptr;
    }
}

Connection* LocalNode::connect(const Route& route, unsigned slot) noexcept {
    if (!network_ || slot >= slots_) {
        errno = network_ ? ENOENT : ENETUNREACH;
        return nullptr;
    }
    try {
        return network_->connect(route, slot);
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
        return nullptr;
    }
}

Connection* LocalNode::make_link(unsigned slot) {
    pid_t pid = 0;
    UniqueFd socket = dial(rendezvous_, slot, pid);
    if (!socket) {
        return nullptr;
    }
    UniqueFd file;
    LinkMemory memory = LinkMemory::make(ring_sizes_, file);
    if (!memory) {
        return nullptr;
    }
    Message hello;
    hello.kind = MessageKind::hello;
    hello.number = slot_.number();
    std::copy(ring_sizes_.begin(), ring_sizes_.end(), hello.ring_bytes.begin());
    context_.cookie.tell(hello);
    const std::array<int, message_descriptors> descriptors{file.get(), doorbell_.get()};
    if (const int error = post(socket.get(), hello, descriptors)) {
        errno = error == EPIPE ? ENOENT : error == ETOOMANYREFS ? EMFILE : error;
        return nullptr;
    }
    const int number = socket.get();
    if (!watch(number, Source::link)) {
        errno = ENOMEM;
        return nullptr;
    }
    links_.push_back(std::make_unique<Link>(context_, std::move(socket),
                                            tag_of(Source::link, number), std::move(memory),
                                            Link::Side::connector, slot, pid, UniqueFd()));
    return links_.back().get();
}

unsigned LocalNode::progress(Handler& handler, unsigned budget) {
    unsigned done = 0;
    bool over = false;
    // The handler may add links.
    const std::size_t count = links_.size();
    std::size_t at = first_ < count ? first_ : 0;
    for (std::size_t turn = 0; turn < count; ++turn) {
        Link& link = *links_[at];
        done += link.progress(handler, budget - done);
        over = over || link.over();
        at = at + 1 < count ? at + 1 : 0;
    }
    first_ = at + 1;
    if (network_) {
        done += network_->progress(handler, budget - std::min(budget, done));
    }
    if (over) [[unlikely]] {
        reap(handler);
    }
    return done;
}

void LocalNode::reap(Handler& handler) {
    for (std::size_t at = 0; at < links_.size();) {
        if (!links_[at]->over()) {
            ++at;
            continue;
        }
        // Out of the list first: the handler may connect again.
        const std::unique_ptr<Link> gone = std::move(links_[at]);
        links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(at));
        ++context_.deliveries;
        handler.on_gone(*gone);
        gone->part();
    }
}

bool LocalNode::arm() noexcept {
    answer_doorbell();
    context_.armed = true;
    for (const auto& link : links_) {
        link->arm();
    }
    const bool network_is_idle = !network_ || network_->arm();
    if (!network_is_idle ||
        std::any_of(links_.begin(), links_.end(), [](auto& link) { return link->pending(); })) {
        disarm();
        return false;
    }
    return true;
}

void LocalNode::disarm() noexcept {
    if (!context_.armed) {
        return;
    }
    context_.armed = false;
    if (network_) {
        network_->disarm();
    }
    for (const auto& link : links_) {
        link->disarm();
    }
}

void LocalNode::wait(std::int64_t timeout_ns) noexcept {
    std::array<pollfd, 2> descriptors{{{.fd = epoll_.get(), .events = POLLIN, .revents = 0},
                                       {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    constexpr std::int64_t second = 1'000'000'000;
    const timespec limit{.tv_sec = timeout_ns / second, .tv_nsec = timeout_ns % second};
    const int ready =
        ::ppoll(descriptors.data(), descriptors.size(), timeout_ns < 0 ? nullptr : &limit, nullptr);
    // Taken by who sleeps: taken by somebody else, it might not end the sleep.
    if (ready > 0 && descriptors[1].revents != 0) {
        eventfd_t count = 0;
        ::eventfd_read(wake_.get(), &count);
    }
}

void LocalNode::wake() noexcept {
    ::eventfd_write(wake_.get(), 1);
}

void LocalNode::answer_doorbell() noexcept {
    eventfd_t count = 0;
    if (::eventfd_read(doorbell_.get(), &count) != 0 || !context_.armed) {
        return;
    }
    // A thread that still sleeps may have missed the bell. It is to hear the next one.
    for (const auto& link : links_) {
        link->arm();
    }
}

} // namespace softverbs::fabric
