// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace nixl_rdmabuf {

/// Registered memory of this agent. Transfers that are in progress share its ownership, because
/// NIXL may deregister their memory.
using LocalMemory = std::shared_ptr<const rdmabuf::transport::Memory>;

struct Peer;

/// Registered memory of a remote agent, or of this agent as the target of its own transfers.
struct RemoteBuffer {
    std::uint64_t address = 0;
    rdmabuf::transport::RemoteMemory memory;
    /// The remote agent. Its name alone does not identify it: after a disconnection, another
    /// process may have this name.
    std::weak_ptr<const Peer> peer;
    /// The memory, if it is memory of this agent.
    std::weak_ptr<const rdmabuf::transport::Memory> local;
};
/// Transfers share the ownership, because NIXL unloads the metadata of a remote agent before it
/// disconnects the agent.
using RemotePointer = std::shared_ptr<const RemoteBuffer>;

struct Block {
    LocalMemory local;
    std::uintptr_t local_address = 0;
    RemotePointer remote;
    std::uint64_t remote_address = 0;
    std::size_t length = 0;
};

/// No connection information of the remote agent was loaded, or the remote agent or the memory of a
/// transfer no longer exists.
class NotFound : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};
/// The connection to the remote agent cannot be opened, or has ended.
class LostAgent : public std::runtime_error {
  public:
    LostAgent(const std::string& name, const std::string& reason);
};

enum class Direction : std::uint8_t { read, write };
enum class TransferState : std::uint8_t {
    not_posted,
    in_progress,
    /// release() was called, and devices still access the memory of the transfer.
    aborting,
    done,
    failed,
    /// The connection to the remote agent could not be opened or has ended, or this agent has
    /// called disconnect().
    disconnected
};

/// A list of blocks that one request transfers. After a transfer has ended, it can be posted again.
class Transfer {
  public:
    /// Returns why the transfer has the state failed or disconnected.
    [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  private:
    friend class Agent;
    [[nodiscard]] bool ended() const noexcept {
        return state_ != TransferState::in_progress && state_ != TransferState::aborting;
    }

    Direction direction_{};
    std::string remote_agent_;
    std::vector<rdmabuf::transport::TransferEntry> entries_;
    /// The remote memory to which entries_ points.
    std::set<RemotePointer> remote_;
    /// The memory of this agent to which entries_ points. The transfer owns it only until it has
    /// ended: see owned_.
    std::vector<std::weak_ptr<const rdmabuf::transport::Memory>> local_;
    /// The owners of local_ from post() to the end of the transfer; otherwise empty.
    std::vector<LocalMemory> owned_;
    /// entries_, checked for the channel with the number prepared_for_.
    rdmabuf::transport::PreparedList list_;
    /// Channel::number() of the channel for which list_ was prepared; 0 if list_ is not prepared.
    std::uint32_t prepared_for_ = 0;
    std::optional<std::string> notification_;
    /// The agent to which the transfer was posted. `remote_agent_` alone does not identify it:
    /// after a disconnection, another process may have this name.
    std::shared_ptr<Peer> peer_;
    rdmabuf::transport::Request request_;
    /// True if the transfer was posted but is not started, because it waits for the connection or
    /// for earlier requests.
    bool waits_ = false;
    /// The value that Peer::messages_sent will have when the notification of this transfer is sent.
    /// 0 while the notification is not in Peer::messages.
    std::uint64_t message_ = 0;
    TransferState state_ = TransferState::not_posted;
    std::string reason_;
};

/// A remote agent, or this agent itself.
struct Peer {
    rdmabuf::transport::Handle handle;
    std::optional<rdmabuf::transport::Connector> connector;
    std::optional<rdmabuf::transport::Channel> channel;
    /// The reason why the connection could not be opened; after disconnect(), a text that says so;
    /// otherwise empty.
    std::string error;
    /// The reason why messages were discarded: the connection could not be opened. The next
    /// notify() reports it once. Otherwise empty.
    std::string lost;
    /// Messages that wait for the connection, or for room at the peer. The first message on a
    /// channel is the name of the agent that has connected.
    std::deque<std::string> messages;
    /// The number of bytes of the first message that are already sent.
    std::size_t sent = 0;
    /// The number of messages that were sent and removed from `messages`.
    std::uint64_t messages_sent = 0;
    /// Posted transfers that wait until the channel is connected, or until it has room for another
    /// request.
    std::deque<Transfer*> transfers;
    /// After disconnect(): the time until which the messages that are left in `messages` may still
    /// be sent.
    std::chrono::steady_clock::time_point linger_end;
};

/// A notification from a remote agent: the name of the remote agent, and the message.
using Notification = std::pair<std::string, std::string>;

/// The functions that a backend of NIXL needs, implemented with one endpoint. Every function that
/// makes progress also accepts connections of remote agents, so there is no function to accept a
/// connection. A remote agent needs the connection_info() of this agent to connect. Several threads
/// may call the functions at the same time, but only one of them progress_and_sleep(). Functions
/// throw std::runtime_error or rdmabuf::Error for failures, unless their comments describe another
/// result.
class Agent {
  public:
    /// @param name    the name of this agent, which remote agents report with its notifications
    /// @param device  the name of the RDMA device; empty for Context::open_first()
    /// @param host    the address at which the agent listens; see Endpoint::listen()
    Agent(std::string name, const std::string& device, const std::string& host);
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;
    ~Agent();

    // Memory

    /// Registers host memory or memory of a GPU. Other calls do not wait for a long registration.
    /// The memory is deregistered when the last copy of the returned LocalMemory is destroyed, and
    /// no transfer that uses it is in progress.
    [[nodiscard]] LocalMemory register_memory(std::uintptr_t address, std::size_t length);
    /// Returns the bytes that a remote agent needs to access the memory. The remote agent passes
    /// these bytes to load_remote(), together with the address of the memory.
    [[nodiscard]] static std::string describe(const LocalMemory& memory);
    /// @throws NotFound
    [[nodiscard]] RemotePointer load_remote(const std::string& remote_agent, std::uintptr_t address,
                                            std::string_view bytes) const;
    /// Returns a description of memory of this agent, for transfers from this agent to itself.
    [[nodiscard]] static RemotePointer load_local(const LocalMemory& memory);

    // Connections

    /// Returns the bytes that a remote agent needs to connect to this agent.
    [[nodiscard]] std::string connection_info() const;
    void load_connection_info(const std::string& remote_agent, std::string_view bytes);
    /// Starts to connect to a remote agent whose connection information was loaded. The call does
    /// not wait. It is optional: the first transfer or notification also starts to connect.
    void connect(const std::string& remote_agent);
    /// Forgets a remote agent. Does not wait. Transfers that have not started, or that are in
    /// flight when the connection closes, end with the state disconnected. Later calls that make
    /// progress, or the destructor, send the messages that notify() has accepted, for at most
    /// EndpointOptions::linger, and then close the connection.
    void disconnect(const std::string& remote_agent);

    // Transfers

    [[nodiscard]] std::unique_ptr<Transfer> prepare(Direction direction,
                                                    const std::string& remote_agent,
                                                    std::span<const Block> blocks) const;
    /// Posts a transfer.
    /// @param notification  sent to the remote agent after all blocks are transferred. The transfer
    ///                      is in progress until all of the notification is sent
    /// @return false, without any effect, if the transfer was posted before and has not ended
    /// @throws NotFound  also if memory of the transfer was deregistered, or if the remote agent
    ///                   was disconnected after its memory was loaded
    /// @throws LostAgent
    [[nodiscard]] bool post(Transfer& transfer, std::optional<std::string> notification);
    /// Makes progress and returns the state of a transfer.
    [[nodiscard]] TransferState check(Transfer& transfer);
    /// Ends a transfer: the blocks that are not posted to the device are not transferred. The first
    /// call waits at most 10 ms for the end of the posted blocks. Further calls wait without limit,
    /// because NIXL ignores their result, and the program may then free the memory.
    /// @return true if the transfer has ended. If not, call again before destroying the transfer.
    [[nodiscard]] bool release(Transfer& transfer);

    // Notifications

    /// Sends a message to a remote agent, independently of any transfer.
    /// @throws NotFound
    /// @throws LostAgent
    void notify(const std::string& remote_agent, std::string_view message);
    /// Makes progress, and returns the messages that have arrived since the last call.
    [[nodiscard]] std::vector<Notification> take_notifications();

    /// Makes progress, and sleeps until there is something to do. Call it in a loop, in one thread.
    /// @param delay  the duration of the sleep if no descriptor reports the next event, for example
    ///               while a connection is being closed
    void progress_and_sleep(std::chrono::microseconds delay);
    /// Ends the current or the next sleep of progress_and_sleep(), unless it sleeps for `delay`.
    void interrupt() const noexcept;

  private:
    using Lock = std::lock_guard<std::mutex>;

    /// A channel that a remote agent has opened by connecting to this agent.
    struct Incoming {
        rdmabuf::transport::Channel channel;
        /// The name of the remote agent, after it has arrived.
        std::optional<std::string> name;
        /// The beginning of a message whose other parts have not arrived.
        std::string partial;
    };

    [[nodiscard]] const std::shared_ptr<Peer>& peer(const std::string& remote_agent) const;
    /// Returns the peer, and starts to connect unless the peer is connected or connecting.
    /// @throws NotFound
    /// @throws LostAgent
    [[nodiscard]] const std::shared_ptr<Peer>& connecting_peer(const std::string& remote_agent);
    void add_peer(const std::string& remote_agent, const rdmabuf::transport::Handle& handle);
    void advance();
    /// Ends the sleep of another thread in progress_and_sleep(), so that its next sleep uses a new
    /// timeout and new descriptors. Called after a change on which these depend, for example the
    /// start of a transfer or a connection.
    void wake() noexcept;
    /// @return true if accept() must be called again without an event: a connection could not be
    ///         accepted, or the listener has no descriptor to wait for
    [[nodiscard]] bool accept();
    void advance_connection(Peer& peer);
    static void send_messages(Peer& peer);
    void start_transfers(Peer& peer);
    /// Implements disconnect(). The caller must hold `mutex_`.
    void drop(const std::string& remote_agent);
    /// Continues to close the connections in closing_, without waiting.
    void advance_closing();
    /// Continues to close the connection of @p peer, which was disconnected or is in closing_,
    /// without waiting.
    /// @return true if the connection is closed
    [[nodiscard]] bool close(Peer& peer);
    [[nodiscard]] bool start(Transfer& transfer, rdmabuf::transport::Channel& channel);
    void test(Transfer& transfer);
    void end(Transfer& transfer, TransferState state, std::string reason);
    void abort(Transfer& transfer);
    /// @return false if the peer has sent a message without send_copy(), which no agent does
    [[nodiscard]] bool receive(Incoming& from);
    void receive_all();
    /// Moves a channel to closing_, so that later calls that make progress close it.
    void close_later(rdmabuf::transport::Channel channel);

    std::string name_;
    mutable std::mutex mutex_;
    rdmabuf::transport::Endpoint endpoint_;
    rdmabuf::transport::Listener listener_;
    std::array<std::byte, rdmabuf::transport::max_copied_message> buffer_{};
    rdmabuf::transport::Memory registered_;
    std::map<std::string, std::shared_ptr<Peer>> peers_;
    /// The connections that are being closed: those of disconnected agents, and those that remote
    /// agents have opened.
    std::vector<std::shared_ptr<Peer>> closing_;
    std::vector<std::unique_ptr<Incoming>> incoming_;
    std::vector<Notification> notifications_;
    /// The number of transfers that have not ended.
    std::size_t transfers_ = 0;
    /// True while a connection is being closed, or if the last accept() has returned true. No
    /// descriptor reports the progress of either, so progress_and_sleep() then sleeps for a fixed
    /// time.
    bool polls_ = false;
    /// True while progress_and_sleep() waits for an event.
    bool sleeps_ = false;
    /// An eventfd(2), which is readable after interrupt().
    rdmabuf::UniqueFd interrupts_;
};

} // namespace nixl_rdmabuf
