// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "cm/channel_file.hpp"
#include "cm/id.hpp"
#include "cm/registry.hpp"

namespace softverbs::cm {

/// The connection management of this process: event channels (the open files of
/// /dev/infiniband/rdma_cm), rdma_cm ids, bound ports, the sending of messages to other processes,
/// and a thread that receives messages and runs timers. One lock protects all of it. A thread that
/// holds this lock may take Process::lock (objects/process.hpp). A thread that holds Process::lock
/// must not take this lock.
///
/// Functions that implement commands return 0 or the errno that the kernel returns.
class Manager {
  public:
    /// @throws std::system_error  if the rendezvous directory (in which processes find each other)
    ///     or the file with the bound ports cannot be used
    Manager();
    Manager(const Manager&) = delete;
    Manager& operator=(const Manager&) = delete;
    ~Manager() = delete; // Threads may use it until the process has ended.

    std::mutex lock;

    /// Returns whether this process has created the Manager. Returns false in a child process that
    /// vfork(2) has created, which runs in the memory of its parent.
    [[nodiscard]] bool mine() const noexcept { return owner_ == ::getpid(); }

    /// Creates the ChannelFile (event channel) for an open(2) of /dev/infiniband/rdma_cm, and
    /// stores its address in @p file. The Manager owns the ChannelFile. Returns 0 or an errno.
    [[nodiscard]] int open_file(int flags, ChannelFile*& file);
    /// Destroys a ChannelFile (event channel) and its rdma_cm ids. Called when the last file
    /// descriptor of the channel is closed.
    void close_file(ChannelFile& file);

    // Functions in ids.cpp, for rdma_cm ids:
    [[nodiscard]] Id* create_id(ChannelFile& file, std::uint64_t uid, std::uint16_t port_space,
                                ibv_qp_type qp_type);
    /// Returns the rdma_cm id with this handle in the event channel @p file. On failure, returns
    /// null and sets errno: ENOENT (there is no such id), EINVAL (the id belongs to another event
    /// channel).
    [[nodiscard]] Id* find_id(const ChannelFile& file, std::uint32_t handle) const;
    /// Destroys an id. Returns how many of its events the program has received.
    unsigned destroy_id(Id& id);
    void migrate_id(Id& id, ChannelFile& file);
    [[nodiscard]] Multicast* find_group(const ChannelFile& file, std::uint32_t handle, Id*& owner);

    // Functions in addressing.cpp, for binding, resolving addresses, listening and multicast:
    [[nodiscard]] int bind(Id& id, const Address& address);
    /// Stores the options of a bound id in the file of bound ports, which all processes of the user
    /// share. Does nothing if the id is not bound. Called when the program sets an option.
    void update_binding(const Id& id) noexcept;
    [[nodiscard]] int listen(Id& id, int backlog);
    [[nodiscard]] int resolve_address(Id& id, const Address& source, const Address& destination);
    [[nodiscard]] int resolve_route(Id& id);
    [[nodiscard]] int join(Id& id, const Address& group, std::uint64_t uid, std::uint32_t& handle);
    /// Leaves a multicast group. Returns how many events of this group the program has received.
    unsigned leave(Id& owner, Multicast& group);

    /// Implements rdma_set_option(). Returns 0 or an errno: EINVAL (the value is invalid, or the
    /// state or the type of the id does not permit the change), ENOSYS (the option is unknown).
    [[nodiscard]] int set_option(Id& id, std::uint32_t level, std::uint32_t option,
                                 std::span<const std::byte> value);

    // Functions in connection.cpp, for the commands that establish and end connections:
    [[nodiscard]] int connect(Id& id, const rdma_ucm_conn_param& parameters,
                              const rdma_ucm_ece& ece);
    [[nodiscard]] int accept(Id& id, std::uint64_t uid, const rdma_ucm_conn_param& parameters,
                             const rdma_ucm_ece& ece);
    [[nodiscard]] int reject(Id& id, const rdma_ucm_reject& command);
    [[nodiscard]] int disconnect(Id& id);
    [[nodiscard]] int notify(Id& id, std::uint32_t event);

    // Functions that the Exchange calls:
    void received(const Peer& from, const Message& message);
    /// Ends the rdma_cm connections to the process @p peer. Called when this process has ended or
    /// the connection to it has failed: no more messages from it will arrive.
    void lost(const Peer& peer);
    /// Returns the process of this host that has called rdma_listen() for this address. Returns no
    /// value if there is none.
    [[nodiscard]] std::optional<Peer> find_service(std::uint16_t port_space,
                                                   const WireAddress& address);
    /// Makes the id of a connection request, which was sent to @p peer, wait for the reply.
    void request_sent(std::uint32_t communication_id, const Peer& peer);
    /// Sends a connection request again later, or raises an event for the program after several
    /// attempts. Called when the request was not sent, because no process of the other host listens
    /// at its destination, or because no connection to that process could be created.
    void no_service(const Message& request);
    /// Raises RDMA_CM_EVENT_UNREACHABLE. Called when a connection request was not sent, because the
    /// handshake with the other host has failed, for example because the hosts have different
    /// secrets.
    void request_refused(std::uint32_t communication_id);

    /// Queues an event for the program. Does nothing if the id belongs to a connection request that
    /// the program has not accepted yet.
    void raise(Id& id, EventType type, int status = 0);
    void raise(Id& id, const Event& event);
    /// Raises RDMA_CM_EVENT_DEVICE_REMOVAL for all ids that use the device.
    void device_removed(unsigned device);

    /// Removes the files of this process from the rendezvous directory. Called at process exit.
    /// Waits for at most 0.1 seconds for Manager::lock, and for at most 0.2 seconds for another
    /// process that ends at the same time.
    void at_exit() noexcept;
    /// Called in a child process after fork(2). Closes the file descriptors that the child has
    /// inherited. The child does not use the Manager of its parent afterwards.
    void abandon() noexcept;

    /// Does the work of the thread of the Manager while a test has stopped the clock: receives
    /// messages and runs expired timers, without waiting. Returns whether there was such work;
    /// false if the clock runs.
    bool step() noexcept;
    /// Returns when the next timer expires, in nanoseconds of fabric::now_ns(). 0: no timer is set.
    [[nodiscard]] std::uint64_t next_deadline();
    /// Must be called when the clock runs again. Resumes the thread.
    void clock_runs() noexcept;

  private:
    void run();
    /// Handles events that epoll_wait(2) has returned, receives messages and runs timers. Returns
    /// whether there was such work.
    bool work(std::span<const epoll_event> events) noexcept;
    [[nodiscard]] std::uint64_t earliest_deadline() const noexcept;
    void close_unused(std::uint64_t address);
    void wake() noexcept;
    void run_timers(std::uint64_t now);
    void set_deadline(Id& id, std::uint64_t after_ns);
    void clear_deadline(Id& id);

    void resolve_remote_address(Id& id);

    [[nodiscard]] Id* add_id(ChannelFile& file, std::uint16_t port_space, ibv_qp_type qp_type);
    void release_binding(Id& id);

    // Functions in connection.cpp, for communication IDs and messages:
    /// Returns the id with this communication ID, or null if there is none.
    [[nodiscard]] Id* find_connection(std::uint32_t communication_id) const;
    void forget_communication_id(Id& id);
    [[nodiscard]] Message message(const Id& id, MessageType type) const;
    void send(const Id& id, const Message& message);
    void reply(const Peer& to, const Message& cause, MessageType type, std::uint8_t status);

    // Functions in connection.cpp, which find the listener for a connection request:
    [[nodiscard]] Id* find_listener(const Message& message);
    void send_request(Id& id, const Message& request);
    void send_request_to_host(Id& id, const Message& request);
    void look_up_again(Id& id, const Message& request);

    // Functions in received_messages.cpp, which handle received messages:
    void received_request(const Peer& from, const Message& message);
    void received_reply(Id& id, const Message& message);
    void received_sidr_reply(Id& id, const Message& message);

    // Functions in disconnection.cpp, which handle the end of connections:
    void withdraw(Id& id);
    void received_disconnect(Id& id);
    void report_disconnect(Id& id);
    void end_connection(Id& id, int status);
    void expired(Id& id);

    Exchange exchange_;
    Registry registry_;
    fabric::UniqueFd epoll_;
    fabric::UniqueFd wake_;
    std::vector<std::unique_ptr<ChannelFile>> files_;
    std::map<std::uint32_t, std::unique_ptr<Id>> ids_;
    std::set<std::pair<std::uint64_t, std::uint32_t>> deadlines_; // deadline and handle of the id
    std::uint32_t next_handle_ = 0;
    std::uint32_t next_group_ = 0;
    /// Timeout exponent for the reply of a peer to a message: 4.096 µs * 2^response_timeout_.
    unsigned response_timeout_;
    pid_t owner_ = ::getpid();
    std::thread thread_;
};

/// Returns the Manager of this process. Creates it in the first call. On failure, returns null and
/// sets errno.
[[nodiscard]] Manager* manager();
/// Returns the Manager of this process, or null if it has not been created.
[[nodiscard]] Manager* existing_manager() noexcept;

} // namespace softverbs::cm
