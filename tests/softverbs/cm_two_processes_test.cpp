// SPDX-License-Identifier: BSD-3-Clause
// Connections between two processes. One of them is killed or stopped.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "checked_calls.hpp"
#include "child_process.hpp"
#include "cm_fixture.hpp"

namespace softverbs_test {
namespace {

/// A server in another process. It accepts all connection requests, or none of them.
class Server {
  public:
    enum class Behaviour { accepts, accepts_nothing };

    explicit Server(Behaviour behaviour) {
        const std::array<int, 2> sockets = connected_sockets(time_limit);
        pid_ = fork_child(2 * time_limit, [&]() -> int {
            serve(Conversation(sockets[1]), behaviour == Behaviour::accepts);
        });
        port_ = Conversation(sockets[0]).hear<std::uint16_t>();
        ::close(sockets[0]);
        ::close(sockets[1]);
    }
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server() { kill(); }

    [[nodiscard]] std::uint16_t port() const { return port_; }
    /// Stops the server, and waits until all its threads are stopped.
    void stop() const {
        int status = 0;
        EXPECT_EQ(::kill(pid_, SIGSTOP), 0);
        EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
        EXPECT_TRUE(WIFSTOPPED(status));
    }
    void kill() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
            pid_ = -1;
        }
    }

  private:
    [[noreturn]] static void serve(const Conversation& test, bool accepts) {
        const Channel channel;
        const UniqueId listener = channel.listen();
        test.tell(ntohs(rdma_get_src_port(listener.get())));
        while (true) {
            const SeenEvent event = channel.next();
            rdma_conn_param reply = parameters("hello");
            if (accepts && event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
                EXPECT_EQ(rdma_accept(event.id, &reply), 0);
            }
        }
    }

    pid_t pid_ = -1;
    std::uint16_t port_ = 0;
};

class CmTwoProcesses : public testing::Test {
  protected:
    /// Returns an id that has sent a connection request.
    [[nodiscard]] static UniqueId request(const Channel& channel, const Server& server) {
        UniqueId id = channel.route(server.port());
        rdma_conn_param asked = parameters();
        EXPECT_EQ(rdma_connect(id.get(), &asked), 0) << std::strerror(errno);
        return id;
    }
};

TEST_F(CmTwoProcesses, DeathOfThePeerEndsAConnection) {
    Server server(Server::Behaviour::accepts);
    const Channel channel;
    const UniqueId id = request(channel, server);
    const SeenEvent response = channel.next();
    EXPECT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
    EXPECT_EQ(response.private_data, padded("hello", 196));
    ASSERT_EQ(rdma_establish(id.get()), 0);
    server.kill();
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(rdma_disconnect(id.get()), 0);
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(CmTwoProcesses, DeathOfThePeerRejectsARequest) {
    Server server(Server::Behaviour::accepts_nothing);
    const Channel channel;
    const UniqueId id = request(channel, server);
    server.kill();
    EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_REJECTED);
    // The port of the killed server is free.
    const UniqueId other = channel.make_id();
    EXPECT_EQ(bind_error(other.get(), "127.0.0.1", server.port()), 0);
}

TEST_F(CmTwoProcesses, StoppedPeerIsUnreachableAfterTheTimeouts) {
    const Server server(Server::Behaviour::accepts);
    const Channel channel;
    server.stop();
    const ManualClock clock;
    const auto begin = ManualClock::now();
    const UniqueId id = request(channel, server);
    const SeenEvent event = channel.next();
    EXPECT_EQ(event.type, RDMA_CM_EVENT_UNREACHABLE);
    EXPECT_EQ(ManualClock::now() - begin, 16 * std::chrono::nanoseconds(4096) * (1 << 20));
    EXPECT_EQ(event.status, -ETIMEDOUT);
}

} // namespace
} // namespace softverbs_test
