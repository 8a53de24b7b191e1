// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "cm/channel_file.hpp"
#include "cm/id.hpp"
#include "cm/local_exchange.hpp"
#include "cm/network_exchange.hpp"
#include "cm/registry.hpp"

namespace softverbs::cm {

/// Everything that this process has of connection management: open files, ids, bound ports, the way
/// to other processes, and a thread that receives messages and runs timers while the program does
/// something else. One lock guards all of it. The lock of the verbs objects (objects/process.hpp)
/// may be taken with this one held, never the other way round.
///
/// Functions that commands call return 0 or the errno of the kernel's rdma_cm.
class Manager final : Exchange::Receiver, NetworkExchange::Requests {
  public:
    /// @throws std::system_error as LocalExchange and Registry
    Manager();
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;
    ~Manager() = delete; // Threads may use it until the process has ended.

    std::mutex lock;

    // Files.
    /// A new file with one descriptor, which is @p file's only one.
    [[nodiscard]] int open_file(int flags, ChannelFile*& file);
    /// Destroys the file's ids as close(2) of the last descriptor does.
    void close_file(ChannelFile& file);

    // Ids.
    [[nodiscard]] Id* create_id(ChannelFile& file, std::uint64_t uid, std::uint16_t port_space,
                                ibv_qp_type qp_type);
    /// The id of a file. Null, with errno: ENOENT (no such id), EINVAL (another file's).
    [[nodiscard]] Id* find_id(const ChannelFile& file, std::uint32_t handle) const;
    /// Returns the number of events reported.
    unsigned destroy_id(Id& id);
    void migrate_id(Id& id, ChannelFile& file);
    [[nodiscard]] Multicast* find_group(const ChannelFile& file, std::uint32_t handle, Id*& owner);

    // Addresses: addressing.cpp.
    [[nodiscard]] int bind(Id& id, const Address& address);
    [[nodiscard]] int listen(Id& id, int backlog);
    [[nodiscard]] int resolve_address(Id& id, const Address& source, const Address& destination);
    [[nodiscard]] int resolve_route(Id& id);
    [[nodiscard]] int join(Id& id, const Address& group, std::uint64_t uid, std::uint32_t& handle);
    /// Returns the number of events reported.
    unsigned leave(Id& owner, Multicast& group);

    // Connections: connection.cpp.
    [[nodiscard]] int connect(Id& id, const rdma_ucm_conn_param& parameters,
                              const rdma_ucm_ece& ece);
    [[nodiscard]] int accept(Id& id, std::uint64_t uid, const rdma_ucm_conn_param& parameters,
                             const rdma_ucm_ece& ece);
    [[nodiscard]] int reject(Id& id, const rdma_ucm_reject& command);
    [[nodiscard]] int disconnect(Id& id);
    [[nodiscard]] int notify(Id& id, std::uint32_t event);

    // Events.
    /// Queues an event of an id, unless the program does not know the id yet.
    void raise(Id& id, EventType type, int status = 0);
    void raise(Id& id, const Event& event);
    /// DEVICE_REMOVAL for every id on a device.
    void device_removed(unsigned device);

    /// At exit: removes this process's files, and waits for nothing.
    void at_exit() noexcept;
    /// After fork(2), in the child, which never uses the object again.
    void abandon() noexcept;

  private:
    void received(const Peer& from, const Message& message) override;
    void lost(const Peer& peer) override;
    [[nodiscard]] std::optional<Peer> find_service(std::uint16_t port_space,
                                                   const WireAddress& address) override;
    void request_sent(std::uint32_t communication_id, const Peer& peer) override;
    void no_service(const Message& request) override;
    void request_refused(std::uint32_t communication_id) override;

    void run();
    void wake() noexcept;
    void run_timers(std::uint64_t now);
    void set_deadline(Id& id, std::uint64_t after_ns);
    void clear_deadline(Id& id);

    /// The exchange with the host of a peer.
    [[nodiscard]] Exchange& exchange_with(const Peer& peer) noexcept;
    void resolve_remote_address(Id& id);

    [[nodiscard]] Id* add_id(ChannelFile& file, std::uint16_t port_space, ibv_qp_type qp_type);
    void release_binding(Id& id);
    void withdraw(Id& id);

    // Messages of a connection: connection.cpp.
    void assign_communication_id(Id& id);
    void forget_communication_id(Id& id);
    [[nodiscard]] Message message(const Id& id, MessageType type) const;
    void send(const Id& id, const Message& message);
    void send_request(Id& id, const Message& request);
    void send_request_to_host(Id& id, const Message& request);
    void look_up_again(Id& id, const Message& request);
    void reply(const Peer& to, const Message& cause, MessageType type, std::uint8_t status);
    void received_request(const Peer& from, const Message& message);
    void received_reply(Id& id, const Message& message);
    void received_reject(Id& id, const Message& message);
    void received_disconnect(Id& id);
    void received_sidr_reply(Id& id, const Message& message);
    void end_connection(Id& id, int status);
    void expired(Id& id);
    [[nodiscard]] Id* find_listener(const Message& message);

    /// Null: there is no network between hosts. Made before exchange_, which takes a slot whose
    /// port is free.
    std::unique_ptr<NetworkExchange> network_;
    std::unique_ptr<LocalExchange> exchange_;
    std::unique_ptr<Registry> registry_;
    fabric::UniqueFd epoll_;
    fabric::UniqueFd wake_;
    std::vector<std::unique_ptr<ChannelFile>> files_;
    std::map<std::uint32_t, std::unique_ptr<Id>> ids_;
    std::map<std::uint32_t, Id*> by_communication_id_;
    std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_; // with the id's handle
    std::uint32_t next_handle_ = 0;
    std::uint32_t next_group_ = 0;
    std::uint32_t next_communication_id_ = 1;
    /// 4.096 µs * 2^response_timeout_, as verbs counts timeouts.
    unsigned response_timeout_;
    std::thread thread_;
};

/// The process's manager: made at the first call. Null, with errno: it cannot be made.
[[nodiscard]] Manager* manager();
/// The same, without making one.
[[nodiscard]] Manager* existing_manager() noexcept;

} // namespace softverbs::cm
