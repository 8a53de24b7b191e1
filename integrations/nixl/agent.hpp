// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/resolver.hpp>
#include <rdmabuf/transport.hpp>

namespace nixl_rdmabuf {

/// Registered memory of this agent.
struct LocalMemory {
    rdmabuf::transport::Memory memory;
};

/// Registered memory of a remote agent.
struct RemoteBuffer {
    std::uint64_t address = 0;
    rdmabuf::transport::RemoteMemory memory;
};

/// One block of a transfer.
struct Block {
    const LocalMemory* local = nullptr;
    std::uintptr_t local_address = 0;
    const RemoteBuffer* remote = nullptr;
    std::uint64_t remote_address = 0;
    std::size_t length = 0;
};

enum class Direction : std::uint8_t { read, write };
enum class TransferState : std::uint8_t { not_posted, in_progress, done, failed };

/// A list of blocks that one request transfers. After a transfer has ended, it can be posted again.
class Transfer {
  public:
    [[nodiscard]] TransferState state() const noexcept { return state_; }

  private:
    friend class Agent;
    Direction direction_{};
    std::string remote_agent_;
    std::vector<rdmabuf::transport::TransferEntry> entries_;
    std::optional<std::string> notification_;
    rdmabuf::transport::Request request_;
    /// True if the transfer was posted but is not started, because it waits for the connection or
    /// for earlier requests.
    bool waits_ = false;
    TransferState state_ = TransferState::not_posted;
};

/// A notification from a remote agent: the name of the remote agent, and the message.
using Notification = std::pair<std::string, std::string>;

/// The functions that a backend of NIXL needs, implemented with one endpoint. Every function that
/// makes progress also accepts connections of remote agents, so there is no function to accept a
/// connection. A remote agent needs the connection_info() of this agent to connect. Several threads
/// may call all functions at the same time. Functions throw std::runtime_error or rdmabuf::Error
/// for failures, unless their comments describe another result.
class Agent {
  public:
    /// @param name    the name of this agent, which remote agents report with its notifications
    /// @param device  the name of the RDMA device; empty for the first device
    /// @param host    the address at which the agent listens; see Endpoint::listen()
    Agent(std::string name, const std::string& device, const std::string& host);
    Agent(const Agent&) = delete;
    Agent& operator=(const Agent&) = delete;
    ~Agent();

    // Memory

    /// Registers host memory or memory of a GPU.
    [[nodiscard]] std::unique_ptr<LocalMemory> register_memory(std::uintptr_t address,
                                                               std::size_t length);
    void deregister(std::unique_ptr<LocalMemory> memory);
    /// Returns the bytes that a remote agent needs to access the memory. It passes them to
    /// load_remote().
    [[nodiscard]] static std::string describe(const LocalMemory& memory);
    [[nodiscard]] static RemoteBuffer load_remote(std::string_view bytes);

    // Connections

    /// Returns the bytes that a remote agent needs to connect to this agent.
    [[nodiscard]] std::string connection_info() const;
    void load_connection_info(const std::string& remote_agent, std::string_view bytes);
    /// Starts to connect to a remote agent whose connection information was loaded. The call does
    /// not wait. It is optional: the first transfer or notification also starts to connect.
    void connect(const std::string& remote_agent);
    void disconnect(const std::string& remote_agent);

    // Transfers

    [[nodiscard]] std::unique_ptr<Transfer> prepare(Direction direction,
                                                    const std::string& remote_agent,
                                                    std::span<const Block> blocks) const;
    /// Posts a transfer.
    /// @param notification  sent to the remote agent after all blocks are transferred
    /// @return false if the transfer is already in progress
    [[nodiscard]] bool post(Transfer& transfer, std::optional<std::string> notification);
    /// Makes progress and returns the state of a transfer.
    [[nodiscard]] TransferState check(Transfer& transfer);
    /// Destroys a transfer without waiting. If the transfer is in progress, it is destroyed after
    /// its request has ended.
    void release(std::unique_ptr<Transfer> transfer);

    // Notifications

    /// Sends a message to a remote agent, independently of any transfer.
    void notify(const std::string& remote_agent, std::string_view message);
    /// Makes progress, and returns the messages that have arrived since the last call.
    [[nodiscard]] std::vector<Notification> take_notifications();

    void progress();

    /// The maximum length of a notification, and of an agent's name, in bytes. It does not limit
    /// the data of transfers.
    static constexpr std::size_t max_message = 16384;

  private:
    using Lock = std::lock_guard<std::mutex>;

    struct Peer {
        std::optional<rdmabuf::transport::Handle> handle;
        std::optional<rdmabuf::transport::Connector> connector;
        std::optional<rdmabuf::transport::Channel> channel;
        /// The error of a connection attempt or of a message; empty if there was none. All
        /// transfers to the peer then fail.
        std::string error;
        /// Messages, with their tags, that wait for the connection or for the send buffer.
        std::deque<std::pair<rdmabuf::transport::Tag, std::string>> messages;
        /// Posted transfers that wait until the channel is connected, or until it has room for
        /// another request.
        std::deque<Transfer*> transfers;
    };
    /// A channel that a remote agent has opened by connecting to this agent.
    struct Incoming {
        rdmabuf::transport::Channel channel;
        /// The name of the remote agent; empty until its first message has arrived.
        std::string name;
    };

    [[nodiscard]] Peer& peer(const std::string& remote_agent);
    void start_connecting(const std::string& remote_agent, Peer& peer);
    void advance();
    void accept();
    void advance_connection(Peer& peer);
    void send_messages(Peer& peer);
    /// Returns true if the send buffer is unused.
    [[nodiscard]] bool send_buffer_is_free();
    void start_transfers(Peer& peer);
    [[nodiscard]] bool start(Transfer& transfer, rdmabuf::transport::Channel& channel);
    void test(Transfer& transfer, Peer& peer);
    void receive(rdmabuf::transport::Channel& channel, std::string* name,
                 const std::string& known_name);
    void receive_all();

    std::string name_;
    mutable std::mutex mutex_;
    rdmabuf::transport::Endpoint endpoint_;
    rdmabuf::transport::Listener listener_;
    /// Two message buffers of equal length: the first half is for sending, the second half for
    /// receiving.
    std::vector<std::byte> buffers_;
    rdmabuf::transport::Memory registered_;
    std::map<std::string, Peer> peers_;
    /// The peer to which the message in the send buffer is being sent; nullptr if the buffer is
    /// unused.
    Peer* sending_to_ = nullptr;
    rdmabuf::transport::Request sending_;
    std::vector<std::unique_ptr<Incoming>> incoming_;
    std::vector<Notification> notifications_;
    /// Released transfers whose request has not ended.
    std::vector<std::unique_ptr<Transfer>> released_;
};

} // namespace nixl_rdmabuf
