// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include <rdmabuf/transport/detail/setup_queue_pair.hpp>
#include <rdmabuf/transport/detail/shared_state.hpp>

#include "transport/queue_pair_options.hpp"
#include "transport/random_secret.hpp"

namespace rdmabuf::transport::detail {
namespace {

constexpr std::uint32_t setup_receives = 64;
/// The length of the space for the GRH (global routing header) at the start of each receive buffer
/// of a UD queue pair.
constexpr std::size_t grh_size = 40;

/// Returns the active MTU of a port in bytes, which is the maximum length of a datagram.
std::size_t max_datagram(const ibv_port_attr& port) noexcept {
    return std::size_t{128} << static_cast<unsigned>(port.active_mtu);
}

/// Returns a random Q_Key. The highest bit is 0, because Q_Keys with this bit are reserved for
/// privileged programs.
std::uint32_t random_qkey() {
    const Handle::Secret secret = random_secret();
    std::uint32_t qkey = 0;
    std::memcpy(&qkey, secret.data(), sizeof qkey);
    return qkey & 0x7fffffffU;
}

} // namespace

SetupQueuePair::SetupQueuePair(SharedRail& rail, const EndpointOptions& options)
    : receive_size_(grh_size + max_datagram(rail.pd.context().port(options.port))),
      memory_(std::make_unique<std::byte[]>( // NOLINT(*-avoid-c-arrays)
          setup_receives * receive_size_ + sends * sizeof(ConnectedDatagram))),
      region_(rail.pd, memory_.get(),
              setup_receives * receive_size_ + sends * sizeof(ConnectedDatagram)) {
    QueuePairOptions wanted = queue_pair_options(rail, options);
    wanted.type = QueuePairType::unreliable_datagram;
    wanted.max_send_wr = sends;
    wanted.max_recv_wr = setup_receives;
    wanted.qkey = random_qkey();
    PreparedQueuePair prepared(rail.pd, wanted);
    path_ = prepared.connection().path;
    address_ = prepared.address();
    queue_pair_.emplace(std::move(prepared).activate());
    for (std::uint32_t i = 0; i < setup_receives; ++i) {
        post_receive(i).throw_if_failed();
    }
    SharedState::reserve_completions(rail, setup_receives + sends);
}

SetupQueuePair::~SetupQueuePair() = default;

std::shared_ptr<const AddressHandle> SetupQueuePair::path_to(const QueuePairAddress& peer) const {
    return std::make_shared<const AddressHandle>(queue_pair_->protection_domain(), peer, path_);
}

bool SetupQueuePair::send(std::shared_ptr<const AddressHandle> path, const QueuePairAddress& peer,
                          const ConnectedDatagram& datagram) noexcept {
    if (posted_ - sent_ == sends) {
        return false;
    }
    std::byte* const buffer =
        receive_buffer(setup_receives) + posted_ % sends * sizeof(ConnectedDatagram);
    std::memcpy(buffer, &datagram, sizeof datagram);
    const ibv_sge data = {.addr = reinterpret_cast<std::uintptr_t>(buffer),
                          .length = sizeof datagram,
                          .lkey = region_.lkey()};
    if (queue_pair_->post_send_to(
            data, path->destination(peer),
            {.wr_id = WorkId{.work = Work::setup_send}.encode(), .flags = SendFlags::signaled})) {
        paths_[posted_ % sends] = std::move(path);
        ++posted_;
    }
    return true;
}

std::optional<ConnectedDatagram> SetupQueuePair::received(std::uint32_t buffer,
                                                          std::uint32_t size) const noexcept {
    ConnectedDatagram datagram;
    if (size != grh_size + sizeof datagram) {
        return std::nullopt;
    }
    std::memcpy(&datagram, receive_buffer(buffer) + grh_size, sizeof datagram);
    if (datagram.magic != ConnectedDatagram::expected_magic ||
        datagram.version != Hello::current_version) {
        return std::nullopt;
    }
    return datagram;
}

CallStatus SetupQueuePair::post_receive(std::uint32_t buffer) const noexcept {
    const ibv_sge space = {.addr = reinterpret_cast<std::uintptr_t>(receive_buffer(buffer)),
                           .length = static_cast<std::uint32_t>(receive_size_),
                           .lkey = region_.lkey()};
    return queue_pair_->post_recv(space,
                                  WorkId{.work = Work::setup_receive, .number = buffer}.encode());
}

} // namespace rdmabuf::transport::detail
