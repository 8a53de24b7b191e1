// SPDX-License-Identifier: BSD-3-Clause
#include "agent.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <rdmabuf/chunked_region.hpp>
#include <rdmabuf/context.hpp>

namespace nixl_rdmabuf {
namespace {

using namespace rdmabuf::transport;

constexpr Tag message_tag = 1;

template <class T>
T value(rdmabuf::Result<T> result) {
    if (!result) {
        throw std::runtime_error(result.message());
    }
    return *std::move(result);
}
/// Returns true if @p length bytes at @p offset lie within a range of @p whole bytes.
/// @param offset  an address minus the start of the range. An address before the range wraps to a
///                large offset, which is not in the range
bool lies_within(std::uint64_t offset, std::uint64_t length, std::uint64_t whole) noexcept {
    return offset <= whole && length <= whole - offset;
}
Endpoint open_endpoint(const std::string& device) {
    // NIXL transfers lists of many blocks. A list is one request of the endpoint, but each block
    // needs a work request. Therefore `depth` and `send_depth` are higher than their defaults. The
    // handshake may take 24 hours, because an agent without a progress thread can compute for a
    // long time while a peer connects. The socket detects the end of a process or of a machine.
    // NIXL evicts an agent whose connection fails, so the network may be interrupted for as long as
    // with UCX: 7 retries of one second.
    return value(Endpoint::open(
        device.empty() ? rdmabuf::Context::open_first() : rdmabuf::Context::open(device),
        rdmabuf::Resolver::system(),
        {.depth = 1024,
         .send_depth = 256,
         .handshake = std::chrono::hours(24),
         .ack_timeout = 18}));
}

} // namespace

LostAgent::LostAgent(const std::string& name, const std::string& reason)
    : std::runtime_error("the connection to agent '" + name + "' has failed: " + reason) {}

Agent::Agent(std::string name, const std::string& device, const std::string& host)
    : name_(std::move(name)),
      endpoint_(open_endpoint(device)),
      listener_(value(endpoint_.listen(host))),
      registered_(value(endpoint_.register_memory(buffer_.data(), buffer_.size()))),
      interrupts_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!interrupts_) {
        throw std::system_error(errno, std::system_category(), "eventfd");
    }
    load_connection_info(name_, connection_info()); // For transfers within its own memory.
}

Agent::~Agent() {
    const Lock lock(mutex_);
    while (!peers_.empty()) {
        drop(peers_.begin()->first);
    }
    while (!incoming_.empty()) {
        close_later(std::move(incoming_.back()->channel));
        incoming_.pop_back();
    }
    while (!closing_.empty()) { // Without advance(), which would accept further channels.
        endpoint_.wait(std::chrono::milliseconds(1));
        endpoint_.progress();
        advance_closing();
    }
}

LocalMemory Agent::register_memory(std::uintptr_t address, std::size_t length) {
    struct Registered {
        rdmabuf::ChunkedRegion region;
        Memory memory;
    };
    constexpr rdmabuf::Access access = Endpoint::default_access;
    const auto made = std::make_shared<Registered>(Registered{
        .region{std::span(&endpoint_.protection_domain(), 1), rdmabuf::Resolver::system(), address,
                length, rdmabuf::ChunkedRegionOptions{.registration = {.access = access}}},
        .memory{}});
    const bool host = made->region.path() == rdmabuf::RegistrationPath::host;
    const std::array chunks{made->region.chunks(0)};
    const Lock lock(mutex_);
    made->memory = value(endpoint_.use_regions(reinterpret_cast<const void*>(address), length,
                                               access, host, chunks));
    return {made, &made->memory};
}

std::string Agent::describe(const LocalMemory& memory) {
    const RemoteMemory remote = value(memory->remote());
    return {reinterpret_cast<const char*>(remote.bytes().data()), remote.bytes().size()};
}

RemotePointer Agent::load_remote(const std::string& remote_agent, std::uintptr_t address,
                                 std::string_view bytes) const {
    const Lock lock(mutex_);
    return std::make_shared<const RemoteBuffer>(
        RemoteBuffer{.address = address,
                     .memory = value(RemoteMemory::decode(std::as_bytes(std::span(bytes)))),
                     .peer = peer(remote_agent),
                     .local = {}});
}

RemotePointer Agent::load_local(const LocalMemory& memory) {
    return std::make_shared<const RemoteBuffer>(RemoteBuffer{.address = memory->address(),
                                                             .memory = value(memory->remote()),
                                                             .peer = {},
                                                             .local = memory});
}

std::string Agent::connection_info() const {
    const auto bytes = listener_.handle().bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void Agent::load_connection_info(const std::string& remote_agent, std::string_view bytes) {
    const Handle handle = value(Handle::decode(std::as_bytes(std::span(bytes))));
    const Lock lock(mutex_);
    if (const auto known = peers_.find(remote_agent);
        known == peers_.end() || known->second->handle != handle) {
        drop(remote_agent);
        add_peer(remote_agent, handle);
    }
}

void Agent::add_peer(const std::string& remote_agent, const Handle& handle) {
    peers_[remote_agent] = std::make_shared<Peer>();
    peers_[remote_agent]->handle = handle;
}

const std::shared_ptr<Peer>& Agent::peer(const std::string& remote_agent) const {
    const auto found = peers_.find(remote_agent);
    if (found == peers_.end()) {
        throw NotFound("no connection information of agent '" + remote_agent + "' was loaded");
    }
    return found->second;
}

void Agent::connect(const std::string& remote_agent) {
    const Lock lock(mutex_);
    static_cast<void>(connecting_peer(remote_agent));
}

const std::shared_ptr<Peer>& Agent::connecting_peer(const std::string& remote_agent) {
    if (const std::shared_ptr<Peer>& known = peer(remote_agent);
        known->channel && known->channel->state()) {
        if (remote_agent != name_) {
            throw LostAgent(remote_agent, known->channel->reason());
        }
        // After a connection has failed, NIXL loads the connection information of the remote agent
        // again. It never does so for the connection of this agent to itself, so replace the failed
        // connection here.
        drop(name_);
        add_peer(name_, listener_.handle());
    }
    const std::shared_ptr<Peer>& to = peer(remote_agent);
    if (!to->channel && !to->connector) {
        auto connector = endpoint_.start_connect(to->handle);
        if (!connector) {
            throw LostAgent(remote_agent, connector.message());
        }
        to->error.clear();
        to->connector = *std::move(connector);
        wake();
    }
    return to;
}

void Agent::disconnect(const std::string& remote_agent) {
    const Lock lock(mutex_);
    drop(remote_agent);
}

void Agent::drop(const std::string& remote_agent) {
    const auto node = peers_.extract(remote_agent);
    if (!node) {
        return;
    }
    Peer& peer = *node.mapped();
    peer.error = "the agent was disconnected";
    peer.transfers.clear();
    peer.linger_end = std::chrono::steady_clock::now() + endpoint_.options().linger;
    if (!close(peer)) {
        closing_.push_back(node.mapped());
        wake();
    }
}

void Agent::close_later(Channel channel) {
    closing_.push_back(std::make_shared<Peer>());
    closing_.back()->channel = std::move(channel);
}

void Agent::advance_closing() {
    std::erase_if(closing_, [this](const std::shared_ptr<Peer>& peer) { return close(*peer); });
}

bool Agent::close(Peer& peer) {
    advance_connection(peer);
    send_messages(peer);
    const bool sends =
        !peer.messages.empty() && (peer.connector || (peer.channel && !peer.channel->state()));
    if (sends && std::chrono::steady_clock::now() < peer.linger_end) {
        return false;
    }
    peer.connector.reset();
    if (peer.channel && peer.channel->try_close(!sends).value() == EAGAIN) {
        return false;
    }
    peer.channel.reset();
    return true;
}

std::unique_ptr<Transfer> Agent::prepare(Direction direction, const std::string& remote_agent,
                                         std::span<const Block> blocks) const {
    auto transfer = std::make_unique<Transfer>();
    transfer->direction_ = direction;
    transfer->remote_agent_ = remote_agent;
    transfer->entries_.reserve(blocks.size());
    std::set<LocalMemory> local;
    for (const Block& block : blocks) {
        const std::uint64_t offset = block.remote_address - block.remote->address;
        if (!lies_within(offset, block.length, block.remote->memory.length())) {
            throw std::runtime_error("a block is not inside the registered memory of agent '" +
                                     remote_agent + "'");
        }
        if (!lies_within(block.local_address - block.local->address(), block.length,
                         block.local->length())) {
            throw std::runtime_error("a block is not inside the registered memory of this agent");
        }
        transfer->entries_.push_back({.memory = block.local.get(),
                                      .address = reinterpret_cast<const void*>(block.local_address),
                                      .length = block.length,
                                      .remote = &block.remote->memory,
                                      .offset = offset});
        local.insert(block.local);
        transfer->remote_.insert(block.remote);
    }
    if (remote_agent == name_) {
        for (const RemotePointer& remote : transfer->remote_) {
            local.insert(remote->local.lock());
        }
    }
    transfer->local_.assign(local.begin(), local.end());
    return transfer;
}

bool Agent::post(Transfer& transfer, std::optional<std::string> notification) {
    const Lock lock(mutex_);
    if (!transfer.ended()) {
        return false;
    }
    // The keys of memory that no longer exists would end the connection, and with it the other
    // transfers.
    for (const RemotePointer& remote : transfer.remote_) {
        if (transfer.remote_agent_ != name_ &&
            remote->peer.lock() != peer(transfer.remote_agent_)) {
            throw NotFound("agent '" + transfer.remote_agent_ +
                           "' was disconnected after the transfer was prepared");
        }
    }
    std::vector<LocalMemory> owned;
    for (const std::weak_ptr<const Memory>& local : transfer.local_) {
        owned.push_back(local.lock());
        if (!owned.back()) {
            throw NotFound("memory of the transfer was deregistered");
        }
    }
    transfer.peer_ = connecting_peer(transfer.remote_agent_);
    transfer.peer_->transfers.push_back(&transfer);
    transfer.owned_ = std::move(owned);
    transfer.notification_ = std::move(notification);
    transfer.state_ = TransferState::in_progress;
    transfer.waits_ = true;
    if (++transfers_ == 1) {
        wake();
    }
    start_transfers(*transfer.peer_);
    return true;
}

void Agent::start_transfers(Peer& peer) {
    if (!peer.channel) {
        return;
    }
    while (!peer.transfers.empty() && start(*peer.transfers.front(), *peer.channel)) {
        peer.transfers.pop_front();
    }
}

bool Agent::start(Transfer& transfer, Channel& channel) {
    std::error_code error;
    const bool reads = transfer.direction_ == Direction::read;
    if (transfer.prepared_for_ != channel.number()) {
        error = reads ? channel.prepare_get_list(transfer.entries_, transfer.list_)
                      : channel.prepare_put_list(transfer.entries_, transfer.list_);
        transfer.prepared_for_ = error ? 0 : channel.number();
    }
    if (error) {
        // Reported below.
    } else if (reads) {
        error = channel.iget_prepared_list(transfer.list_, transfer.request_);
    } else if (transfer.notification_ && transfer.notification_->size() <= max_notification) {
        // A short notification is sent after the data, so no separate message is needed.
        error = channel.iput_prepared_list(transfer.list_, transfer.request_,
                                           std::as_bytes(std::span(*transfer.notification_)));
        if (!error) {
            transfer.notification_.reset();
        }
    } else {
        error = channel.iput_prepared_list(transfer.list_, transfer.request_);
    }
    if (error.value() == EAGAIN) {
        return false;
    }
    transfer.waits_ = false;
    if (error) {
        end(transfer, channel.state() ? TransferState::disconnected : TransferState::failed,
            error.message());
    }
    return true;
}

TransferState Agent::check(Transfer& transfer) {
    const Lock lock(mutex_);
    if (!transfer.ended()) {
        advance();
        test(transfer);
    }
    return transfer.state_;
}

void Agent::end(Transfer& transfer, TransferState state, std::string reason) {
    transfer.waits_ = false;
    transfer.message_ = 0;
    transfer.notification_.reset();
    transfer.owned_.clear();
    transfer.state_ = state;
    transfer.reason_ = std::move(reason);
    --transfers_;
}

void Agent::test(Transfer& transfer) {
    Peer& peer = *transfer.peer_;
    if (transfer.message_ == 0) {
        if (!peer.channel || transfer.waits_) {
            if (!peer.error.empty()) {
                std::erase(peer.transfers, &transfer);
                end(transfer, TransferState::disconnected, peer.error);
            }
            return;
        }
        // Also after a failure, the transfer ends only when the devices no longer access its
        // memory.
        const Completion completion = peer.channel->test(transfer.request_);
        if (!completion.done) {
            return;
        }
        if (completion.error) {
            end(transfer,
                peer.channel->state() ? TransferState::disconnected : TransferState::failed,
                peer.channel->state() ? peer.channel->reason() : completion.error.message());
            return;
        }
        if (transfer.notification_) {
            // All blocks are transferred: read, or written and acknowledged. Now the notification
            // is sent.
            peer.messages.push_back(*std::move(transfer.notification_));
            transfer.message_ = peer.messages_sent + peer.messages.size();
            send_messages(peer);
        }
    }
    if (transfer.message_ <= peer.messages_sent) {
        end(transfer, TransferState::done, {});
    } else if (!peer.channel) {
        end(transfer, TransferState::disconnected, peer.error);
    } else if (peer.channel->state()) {
        end(transfer, TransferState::disconnected, peer.channel->reason());
    }
}

void Agent::abort(Transfer& transfer) {
    transfer.notification_.reset();
    transfer.state_ = TransferState::aborting;
    if (transfer.waits_ || transfer.message_ != 0) {
        std::erase(transfer.peer_->transfers, &transfer);
        end(transfer, TransferState::failed, "the transfer was released");
    } else if (transfer.peer_->channel) {
        // The result is ignored: if all blocks and the notification are posted, nothing can be
        // cancelled, and the transfer ends when they have completed.
        static_cast<void>(transfer.peer_->channel->cancel(transfer.request_));
    }
}

bool Agent::release(Transfer& transfer) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    for (bool first_call = false;;) {
        {
            const Lock lock(mutex_);
            if (transfer.state_ == TransferState::in_progress) {
                first_call = true;
                abort(transfer);
            }
            if (!transfer.ended()) {
                advance();
                test(transfer);
            }
            if (transfer.ended()) {
                return true;
            }
        }
        if (first_call && std::chrono::steady_clock::now() >= limit) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void Agent::notify(const std::string& remote_agent, std::string_view message) {
    const Lock lock(mutex_);
    if (const std::string reason = std::exchange(peer(remote_agent)->lost, {}); !reason.empty()) {
        throw LostAgent(remote_agent, reason);
    }
    connecting_peer(remote_agent)->messages.emplace_back(message);
    advance();
}

void Agent::send_messages(Peer& peer) {
    // A message is sent in parts of max_copied_message bytes. A shorter part, which may have 0
    // bytes, is the last one of its message.
    while (peer.channel && !peer.messages.empty()) {
        const std::string& message = peer.messages.front();
        const auto part = std::as_bytes(std::span(message)).subspan(peer.sent);
        const std::size_t length = std::min(part.size(), max_copied_message);
        if (peer.channel->send_copy(part.first(length), message_tag)) {
            return; // There is no room now, or the channel has failed: see Channel::state().
        }
        peer.sent += length;
        if (length < max_copied_message) {
            peer.messages.pop_front();
            ++peer.messages_sent;
            peer.sent = 0;
        }
    }
}

std::vector<Notification> Agent::take_notifications() {
    const Lock lock(mutex_);
    advance();
    return std::exchange(notifications_, {});
}

void Agent::progress_and_sleep(std::chrono::microseconds delay) {
    bool polls = false;
    int limit = -1;
    std::vector<pollfd> events;
    {
        const Lock lock(mutex_);
        advance();
        polls = polls_;
        if (!polls && !endpoint_.arm()) {
            return;
        }
        sleeps_ = !polls;
        if (transfers_ != 0) { // Ten wakeups per heartbeat: see Endpoint::descriptor().
            limit = static_cast<int>(endpoint_.options().heartbeat.count() / 10);
        }
        const auto add = [&events](int descriptor, short wanted) {
            events.push_back({.fd = descriptor, .events = wanted, .revents = 0});
        };
        add(endpoint_.descriptor(), POLLIN);
        add(interrupts_.get(), POLLIN);
        add(listener_.descriptor().value_or(-1), POLLIN);
        for (const auto& [name, peer] : peers_) {
            if (peer->connector) {
                short wanted = 0;
                const std::optional<int> descriptor = peer->connector->descriptor(wanted);
                add(descriptor.value_or(-1), wanted);
            }
        }
    }
    if (polls) {
        std::this_thread::sleep_for(delay);
        return;
    }
    static_cast<void>(::poll(events.data(), events.size(), limit));
    const Lock lock(mutex_);
    sleeps_ = false;
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(interrupts_.get(), &count));
}

void Agent::interrupt() const noexcept {
    static_cast<void>(::eventfd_write(interrupts_.get(), 1));
}

void Agent::wake() noexcept {
    if (std::exchange(sleeps_, false)) {
        interrupt();
    }
}

void Agent::advance() {
    endpoint_.progress();
    const bool accepts = accept();
    for (auto& [name, peer] : peers_) {
        advance_connection(*peer);
        send_messages(*peer);
        start_transfers(*peer);
    }
    advance_closing();
    receive_all();
    polls_ = accepts || !closing_.empty();
    if (polls_) {
        wake();
    }
}

bool Agent::accept() {
    std::optional<Channel> channel;
    const std::error_code error = listener_.try_accept(channel);
    if (channel) {
        incoming_.push_back(
            std::make_unique<Incoming>(Incoming{*std::move(channel), std::nullopt, {}}));
    }
    return !listener_.descriptor() || (error && error.value() != EAGAIN);
}

void Agent::advance_connection(Peer& peer) {
    if (!peer.connector) {
        return;
    }
    const std::error_code error = peer.connector->try_connect(peer.channel);
    if (error.value() == EAGAIN) {
        return;
    }
    if (error) {
        peer.error = peer.connector->error_info().message();
        if (!peer.messages.empty()) {
            peer.lost = peer.error;
            peer.messages.clear();
        }
    }
    peer.connector.reset();
    if (peer.channel) {
        peer.messages.push_front(name_);
    }
}

void Agent::receive_all() {
    std::erase_if(incoming_, [this](const std::unique_ptr<Incoming>& from) {
        // Test the state first: messages that have arrived before the failure are received below.
        const bool failed = static_cast<bool>(from->channel.state());
        if (receive(*from) && !failed) {
            return false;
        }
        close_later(std::move(from->channel));
        return true;
    });
}

bool Agent::receive(Incoming& from) {
    while (from.channel.probe(message_tag)) {
        Request request;
        if (from.channel.irecv(registered_, buffer_.data(), buffer_.size(), message_tag, request)) {
            return true;
        }
        // An agent sends with send_copy(), so all data of the message has already arrived.
        const Completion completion = from.channel.test(request);
        if (!completion.done) {
            return false;
        }
        if (completion.error) {
            return true;
        }
        from.partial.append(reinterpret_cast<const char*>(buffer_.data()), completion.bytes);
        if (completion.bytes == buffer_.size()) {
            continue;
        }
        std::string message = std::exchange(from.partial, {});
        if (from.name) {
            notifications_.emplace_back(*from.name, std::move(message));
        } else {
            from.name = std::move(message);
        }
    }
    std::array<std::byte, max_notification> bytes{};
    while (from.name) {
        const auto size = from.channel.notification(bytes);
        if (!size) {
            break;
        }
        notifications_.emplace_back(
            *from.name, std::string(reinterpret_cast<const char*>(bytes.data()), *size));
    }
    return true;
}

} // namespace nixl_rdmabuf
