// SPDX-License-Identifier: BSD-3-Clause
#include "fabric/node.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "fabric/event_source.hpp"
#include "fabric/report.hpp"
#include "fabric/system_error.hpp"
#include "fabric/uncancellable.hpp"

namespace softverbs::fabric {
namespace {

constexpr unsigned most_events = 32;
/// Maximum number of epoll_wait(2) calls in one call of service(). The next call of
/// service() handles the remaining events.
constexpr unsigned most_rounds = 8;

RingSizes checked_sizes(const NodeOptions& options) {
    const RingSizes sizes{options.ring_bytes[0], options.ring_bytes[1]};
    if (!valid(sizes) || options.slots == 0) {
        throw_error(EINVAL,
                    "NodeOptions: slots must not be 0, and ring_bytes must be powers of "
                    "two from 4 KiB to 64 MiB");
    }
    return sizes;
}

} // namespace

Node::Node(const NodeOptions& options)
    : rendezvous_(options.directory.empty() ? default_directory() : options.directory),
      ring_sizes_(checked_sizes(options)),
      slots_(options.slots),
      network_(options.network.addresses.empty()
                   ? nullptr
                   : std::make_unique<TcpNetwork>(options.network, context_)),
      slot_(rendezvous_, slots_,
            [this](unsigned slot) { return network_ == nullptr || network_->listen(slot); }),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "an epoll")),
      doorbell_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "a doorbell")),
      wake_(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "a doorbell")),
      acceptor_(slot_.listener(), epoll_.get()) {
    context_.pull = options.reaches_memory && pull_wanted();
    context_.epoll = epoll_.get();
    context_.doorbell = doorbell_.get();
    rendezvous_.sweep();
    if (!watch(epoll_.get(), slot_.listener(), EventSource::listener) ||
        !watch(epoll_.get(), doorbell_.get(), EventSource::doorbell) ||
        (network_ && !watch(epoll_.get(), network_->descriptor(), EventSource::network))) {
        throw_error(errno, "softverbs cannot add a descriptor to an epoll");
    }
}

Node::~Node() {
    if (slot_.mine()) {
        for (const auto& link : links_) {
            link->shut_down();
        }
    }
}

void Node::abandon() noexcept {
    // Only close the file descriptors of this child process. Do not shut down sockets, unlink files
    // or change the epoll instance, because the parent process shares these objects and still uses
    // them.
    links_.clear();
    acceptor_.abandon();
    if (network_) {
        network_->abandon();
    }
    epoll_.reset();
    doorbell_.reset();
    wake_.reset();
    slot_.abandon();
    rendezvous_.close();
}

void Node::remove_files() const noexcept {
    if (slot_.mine()) {
        rendezvous_.remove(slot_.number());
    }
}

Connection* Node::connect(unsigned slot) noexcept {
    const NoCancellation here;
    for (const auto& link : links_) {
        // Use this connection only if the process at its other end is alive. If that process has
        // ended, a new process may own its slot, and needs a new connection.
        if (link->slot() == slot && link->open() && link->alive()) {
            return link.get();
        }
    }
    if (slot >= slots_) {
        errno = ENOENT;
        return nullptr;
    }
    Connection* made = nullptr;
    try {
        made = make_link(slot);
    } catch (const std::bad_alloc&) {
        errno = ENOMEM;
    }
    if (made == nullptr && (errno == EMFILE || errno == ENOMEM)) {
        const int error = errno;
        report(error == EMFILE ? "this process cannot connect to another process, because it has "
                                 "reached its limit of open files; raise ulimit -n"
                               : "this process cannot connect to another process, because there "
                                 "is not enough memory for the rings; raise ulimit -v or the "
                                 "memory limit");
        errno = error;
    }
    return made;
}

Connection* Node::connect(const Route& route, unsigned slot) noexcept {
    const NoCancellation not_cancelled;
    if (!network_ || (slot >= slots_ && slot != directory_slot)) {
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

Connection* Node::make_link(unsigned slot) {
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
    context_.cookie.store_in(hello);
    const std::array<int, message_descriptors> descriptors{file.get(), doorbell_.get()};
    if (const int error = post(socket.get(), hello, descriptors)) {
        errno = error == EPIPE ? ENOENT : error == ETOOMANYREFS ? EMFILE : error;
        return nullptr;
    }
    if (!watch(epoll_.get(), socket.get(), EventSource::link)) {
        errno = ENOMEM;
        return nullptr;
    }
    links_.push_back(std::make_unique<Link>(context_, std::move(socket), std::move(memory),
                                            Link::Side::connector, slot, pid, UniqueFd()));
    return links_.back().get();
}

unsigned Node::progress(Handler& handler, unsigned budget) {
    unsigned done = 0;
    bool over = false;
    // Visit only the connections that exist now, because a callback of the handler may add
    // connections during the loop.
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

bool Node::service(Handler& handler) {
    std::array<epoll_event, most_events> events{};
    bool handled = false;
    for (unsigned round = 0; round < most_rounds; ++round) {
        const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
        for (int event = 0; event < ready; ++event) {
            handled = handle(events[static_cast<std::size_t>(event)].data.u64, handler) || handled;
        }
        if (ready < static_cast<int>(events.size())) {
            break;
        }
    }
    if (network_) {
        network_->acknowledge();
    }
    reap(handler);
    return handled;
}

std::uint64_t Node::next_deadline() const noexcept {
    return network_ ? network_->next_deadline() : 0;
}

void Node::clock_runs() noexcept {
    if (network_) {
        network_->set_timer();
    }
}

bool Node::handle(std::uint64_t tag, Handler& handler) {
    const int fd = descriptor_of(tag);
    const Acceptor::OnHello on_hello = [&](UniqueFd& socket, pid_t pid, ReceivedMessage& hello) {
        accept_hello(socket, pid, hello, handler);
    };
    switch (source_of(tag)) {
        case EventSource::listener:
            acceptor_.accept(on_hello);
            break;
        case EventSource::doorbell:
            drain_doorbell();
            break;
        case EventSource::client:
            acceptor_.read(fd, on_hello);
            break;
        case EventSource::network:
            return false; // progress() handles the network
        case EventSource::link: {
            const auto found = std::find_if(links_.begin(), links_.end(), [fd](const auto& link) {
                return link->socket() == fd;
            });
            if (found != links_.end()) {
                (*found)->service(handler);
            }
            break;
        }
    }
    return true;
}

bool Node::owns_slot(pid_t pid, unsigned slot) const noexcept {
    // The process that listens on the socket of the slot owns the slot. Connect only to get the PID
    // of that process (SO_PEERCRED); the connection is closed on return.
    pid_t owner = 0;
    const UniqueFd socket = dial(rendezvous_, slot, owner);
    if (!socket && errno == EMFILE) {
        report_descriptor_limit();
    }
    return socket && owner == pid;
}

void Node::accept_hello(UniqueFd& socket, pid_t pid, ReceivedMessage& received, Handler& handler) {
    const Message& hello = received.message;
    if (received.truncated) {
        report_descriptor_limit();
        return;
    }
    if (hello.kind != MessageKind::hello || hello.number >= slots_ ||
        !can_be_doorbell(received.descriptors[1]) || !owns_slot(pid, hello.number)) {
        return;
    }
    LinkMemory memory = LinkMemory::accept(received.descriptors[0].get(),
                                           {hello.ring_bytes[0], hello.ring_bytes[1]});
    if (!memory || !watch(epoll_.get(), socket.get(), EventSource::link)) {
        return;
    }
    received.descriptors[0].reset();
    links_.push_back(std::make_unique<Link>(context_, std::move(socket), std::move(memory),
                                            Link::Side::acceptor, hello.number, pid,
                                            std::move(received.descriptors[1])));
    Link& link = *links_.back();
    link.welcome(hello);
    // Handle the messages that the other process may have sent after its "hello" message.
    link.service(handler);
}

void Node::reap(Handler& handler) {
    for (std::size_t at = 0; at < links_.size();) {
        if (!links_[at]->over()) {
            ++at;
            continue;
        }
        // Remove the connection from links_ before the callback on_closed(), because the callback
        // may connect to the same process again.
        const std::unique_ptr<Link> closed = std::move(links_[at]);
        links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(at));
        ++context_.deliveries;
        handler.on_closed(*closed);
        closed->shut_down();
    }
}

bool Node::arm() noexcept {
    drain_doorbell();
    context_.armed = true;
    for (const auto& link : links_) {
        link->arm();
    }
    if (network_) {
        network_->acknowledge();
    }
    if ((network_ && network_->pending()) ||
        std::any_of(links_.begin(), links_.end(), [](auto& link) { return link->pending(); })) {
        disarm();
        return false;
    }
    return true;
}

void Node::disarm() noexcept {
    if (!context_.armed) {
        return;
    }
    context_.armed = false;
    for (const auto& link : links_) {
        link->disarm();
    }
}

void Node::wait(std::int64_t timeout_ns) noexcept {
    std::array<pollfd, 2> descriptors{{{.fd = epoll_.get(), .events = POLLIN, .revents = 0},
                                       {.fd = wake_.get(), .events = POLLIN, .revents = 0}}};
    constexpr std::int64_t second = 1'000'000'000;
    const timespec limit{.tv_sec = timeout_ns / second, .tv_nsec = timeout_ns % second};
    const int ready =
        ::ppoll(descriptors.data(), descriptors.size(), timeout_ns < 0 ? nullptr : &limit, nullptr);
    // Only the thread that sleeps in wait() or wait_for_wake() may read the eventfd wake_. If
    // another thread read it, the sleeping thread could miss a wakeup.
    if (ready > 0 && descriptors[1].revents != 0) {
        clear_eventfd(wake_.get());
    }
}

void Node::wait_for_wake() noexcept {
    pollfd descriptor{.fd = wake_.get(), .events = POLLIN, .revents = 0};
    if (::ppoll(&descriptor, 1, nullptr, nullptr) > 0) {
        clear_eventfd(wake_.get());
    }
}

void Node::wake() noexcept {
    signal_eventfd(wake_.get());
}

void Node::drain_doorbell() noexcept {
    if (!clear_eventfd(doorbell_.get()) || !context_.armed) {
        return;
    }
    // Another thread may still sleep in wait(). Reading the doorbell (an eventfd) may have consumed
    // the wakeup of that thread. Therefore request another wakeup for the next record that arrives.
    for (const auto& link : links_) {
        link->arm();
    }
}

} // namespace softverbs::fabric
