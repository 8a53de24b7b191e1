// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>
#include <unistd.h>

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

/// The connection management of this process: open files, ids, bound ports, the exchange of
/// messages with other processes, and a thread that receives messages and runs timers. One lock
/// protects all of it. A thread that holds this lock may take Process::lock (objects/process.hpp).
/// A thread that holds Process::lock must not take this lock.
///
/// Functions that implement commands return 0 or the errno that the kernel returns.
/// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it cannot be destroyed
class Manager final : Exchange::Receiver, NetworkExchange::Requests {
  public:
    /// @throws std::system_error  if the rendezvous directory or the file with the bindings cannot
    ///     be used
    Manager();
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;
    ~Manager() = delete; // Threads may use it until the process has ended.

    std::mutex lock;

    /// Returns whether this process has created the Manager. Returns false in a child process by
    /// vfork(2), which runs in the memory of its parent.
    [[nodiscard]] bool mine() const noexcept { return owner_ == ::getpid(); }

    /// Creates the ChannelFile for an open(2) of /dev/infiniband/rdma_cm, and stores it in @p file.
    /// Returns 0 or an errno.
    [[nodiscard]] int open_file(int flags, ChannelFile*& file);
    /// Destroys a ChannelFile and its ids. Called when the last descriptor of the file is closed.
    void close_file(ChannelFile& file);

    // Ids.
    [[nodiscard]] Id* create_id(ChannelFile& file, std::uint64_t uid, std::uint16_t port_space,
                                ibv_qp_type qp_type);
    /// Returns the id with this handle in @p file. On failure, returns null and sets errno: ENOENT
    /// (there is no such id), EINVAL (the id belongs to another file).
    [[nodiscard]] Id* find_id(const ChannelFile& file, std::uint32_t handle) const;
    /// Destroys an id. Returns how many of its events the program has received.
    unsigned destroy_id(Id& id);
    void migrate_id(Id& id, ChannelFile& file);
    [[nodiscard]] Multicast* find_group(const ChannelFile& file, std::uint32_t handle, Id*& owner);

    // Functions in addressing.cpp, for binding, resolving addresses, listening and multicast:
    [[nodiscard]] int bind(Id& id, const Address& address);
    /// Stores the options of a bound id in the port registry, because the program can set options
    /// after rdma_bind_addr().
    void update_binding(const Id& id) noexcept;
    [[nodiscard]] int listen(Id& id, int backlog);
    [[nodiscard]] int resolve_address(Id& id, const Address& source, const Address& destination);
    [[nodiscard]] int resolve_route(Id& id);
    [[nodiscard]] int join(Id& id, const Address& group, std::uint64_t uid, std::uint32_t& handle);
    /// Leaves a multicast group. Returns how many events of this group the program has received.
    unsigned leave(Id& owner, Multicast& group);

    // Functions in connection.cpp, for the commands that establish and end connections:
    [[nodiscard]] int connect(Id& id, const rdma_ucm_conn_param& parameters,
                              const rdma_ucm_ece& ece);
    [[nodiscard]] int accept(Id& id, std::uint64_t uid, const rdma_ucm_conn_param& parameters,
                             const rdma_ucm_ece& ece);
    [[nodiscard]] int reject(Id& id, const rdma_ucm_reject& command);
    [[nodiscard]] int disconnect(Id& id);
    [[nodiscard]] int notify(Id& id, std::uint32_t event);

    /// Queues an event for the program. Does nothing if the program has not received the id yet.
    void raise(Id& id, EventType type, int status = 0);
    void raise(Id& id, const Event& event);
    /// Raises RDMA_CM_EVENT_DEVICE_REMOVAL for all ids that use the device.
    void device_removed(unsigned device);

    /// Removes the files of this process from the rendezvous directory. Called at process exit.
    /// Waits for at most 0.2 seconds for another process that ends at the same time.
    void at_exit() noexcept;
    /// Closes the descriptors in a child process after fork(2). The child does not use the object
    /// afterwards.
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
    /// Handles an event that epoll_wait(2) has returned.
    /// @param what  identifies the descriptor that is ready
    void handle(std::uint64_t what);
    void wake() noexcept;
    void run_timers(std::uint64_t now);
    void set_deadline(Id& id, std::uint64_t after_ns);
    void clear_deadline(Id& id);

    /// Returns the exchange that sends messages to this peer: the local one or the network
    /// exchange.
    [[nodiscard]] Exchange& exchange_with(const Peer& peer) noexcept;
    void resolve_remote_address(Id& id);

    [[nodiscard]] Id* add_id(ChannelFile& file, std::uint16_t port_space, ibv_qp_type qp_type);
    void release_binding(Id& id);

    // Functions in connection.cpp, for communication IDs and sending of messages:
    void assign_communication_id(Id& id);
    void forget_communication_id(Id& id);
    [[nodiscard]] Message message(const Id& id, MessageType type) const;
    void send(const Id& id, const Message& message);
    void reply(const Peer& to, const Message& cause, MessageType type, std::uint8_t status);

    // Functions in service_lookup.cpp, which find the process that listens for a request:
    [[nodiscard]] Id* find_listener(const Message& message);
    void send_request(Id& id, const Message& request);
    void send_request_to_host(Id& id, const Message& request);
    void look_up_again(Id& id, const Message& request);

    // Functions in received_messages.cpp, which handle received messages:
    void received_request(const Peer& from, const Message& message);
    void received_reply(Id& id, const Message& message);
    void received_reject(Id& id, const Message& message);
    void received_sidr_reply(Id& id, const Message& message);

    // Functions in disconnection.cpp, which handle the end of connections:
    void withdraw(Id& id);
    void received_disconnect(Id& id);
    void report_disconnect(Id& id);
    void end_connection(Id& id, int status);
    void expired(Id& id);

    /// Sends and receives the messages of the connection manager to and from other hosts. Null if
    /// the network between hosts is disabled. It is created before exchange_: when exchange_
    /// chooses a process number, network_ checks that the TCP port of this number is free.
    std::unique_ptr<NetworkExchange> network_;
    std::unique_ptr<LocalExchange> exchange_;
    std::unique_ptr<Registry> registry_;
    fabric::UniqueFd epoll_;
    fabric::UniqueFd wake_;
    std::vector<std::unique_ptr<ChannelFile>> files_;
    std::map<std::uint32_t, std::unique_ptr<Id>> ids_;
    std::map<std::uint32_t, Id*> by_communication_id_;
    std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_; // deadline and handle of the id
    std::uint32_t next_handle_ = 0;
    std::uint32_t next_group_ = 0;
    std::uint32_t next_communication_id_ = 1;
    /// Timeout exponent for a reply to a message: 4.096 µs * 2^response_timeout_.
    unsigned response_timeout_;
    pid_t owner_ = ::getpid();
    std::thread thread_;
};

/// Returns the manager of this process. Creates it in the first call. On failure, returns null and
/// sets errno.
[[nodiscard]] Manager* manager();
/// Returns the manager of this process, or null if it has not been created.
[[nodiscard]] Manager* existing_manager() noexcept;

} // namespace softverbs::cm
