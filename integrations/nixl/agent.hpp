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

/// Memory of a remote agent.
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

/// A list of blocks that is transferred by one request. A transfer can be posted several times, one
/// after the other.
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
    /// True if the transfer is not started yet, because it waits for the connection or for other
    /// requests.
    bool waits_ = false;
    TransferState state_ = TransferState::not_posted;
};

/// A notification from a remote agent: the name of this agent, and the message.
using Notification = std::pair<std::string, std::string>;

/// The functions that a backend of NIXL needs, on one endpoint of the transport. Agents connect
/// without an explicit accept: an agent accepts all peers that have its connection information
/// while it makes progress. All functions may be called by several threads at the same time.
/// Functions throw std::runtime_error or rdmabuf::Error for failures, unless they say otherwise.
class Agent {
  public:
    /// @param name    the name by which remote agents report notifications of this agent
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
    /// Returns the bytes that a remote agent passes to load_remote() to access the memory.
    [[nodiscard]] static std::string describe(const LocalMemory& memory);
    [[nodiscard]] static RemoteBuffer load_remote(std::string_view bytes);

    // Connections

    /// Returns the bytes that a remote agent needs to connect to this agent.
    [[nodiscard]] std::string connection_info() const;
    void load_connection_info(const std::string& remote_agent, std::string_view bytes);
    /// Starts to connect to a remote agent whose connection information was loaded. The call does
    /// not wait. Without this call, the first transfer starts to connect.
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
    /// Destroys a transfer. The call does not wait: a transfer that is in progress is destroyed
    /// when its request has ended.
    void release(std::unique_ptr<Transfer> transfer);

    // Notifications

    /// Sends a message to a remote agent, independently of any transfer.
    void notify(const std::string& remote_agent, std::string_view message);
    /// Makes progress, and returns the messages that have arrived since the last call.
    [[nodiscard]] std::vector<Notification> take_notifications();

    void progress();

    /// The maximum length of a message between two agents in bytes. The data of transfers is not in
    /// messages.
    static constexpr std::size_t max_message = 16384;

  private:
    using Lock = std::lock_guard<std::mutex>;

    struct Peer {
        std::optional<rdmabuf::transport::Handle> handle;
        std::optional<rdmabuf::transport::Connector> connector;
        std::optional<rdmabuf::transport::Channel> channel;
        /// The error of the last attempt to connect; empty if there was none.
        std::string error;
        /// Messages that wait for the connection or for the send buffer, with their tags.
        std::deque<std::pair<rdmabuf::transport::Tag, std::string>> messages;
        /// Transfers that start when the channel is connected, or when earlier requests of the
        /// channel have ended.
        std::deque<Transfer*> transfers;
    };
    /// A channel that a remote agent has connected to this agent.
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
    /// The bytes of two message buffers. The first half is for sending, the second half for
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
