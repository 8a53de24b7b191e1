// SPDX-License-Identifier: BSD-3-Clause
// Connections by rdma_cm between two hosts, which are network namespaces joined by a cable.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>

#include "cm_fixture.hpp"
#include "own_network.hpp"
#include "temporary_directory.hpp"

namespace softverbs_test {
namespace {

constexpr const char* server_address = "10.78.0.1";
constexpr const char* client_address = "10.78.0.2";
constexpr int missing_namespaces = 77;

/// A pipe in both directions between the two hosts.
class Wire {
  public:
    explicit Wire(int socket) : socket_(socket) {}
    template <class T>
    void send(const T& value) const {
        EXPECT_EQ(::send(socket_, &value, sizeof value, MSG_NOSIGNAL),
                  static_cast<ssize_t>(sizeof value));
    }
    template <class T>
    [[nodiscard]] T receive() const {
        T value{};
        EXPECT_EQ(::recv(socket_, &value, sizeof value, MSG_WAITALL),
                  static_cast<ssize_t>(sizeof value));
        return value;
    }

  private:
    int socket_;
};

/// What the client can do to the server's host.
struct ServerHost {
    Wire wire;
    pid_t pid;

    void kill() const {
        EXPECT_EQ(::kill(pid, SIGKILL), 0);
        EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
    }
};

using ServerRole = std::function<void(const Channel&, const UniqueId& listener, const Wire&)>;
using ClientRole = std::function<void(const Channel&, std::uint16_t port, const ServerHost&)>;

class CmHosts : public testing::Test {
  protected:
    void SetUp() override {
        std::ofstream(secret()) << "the secret of both hosts";
        ASSERT_EQ(::chmod(secret().c_str(), S_IRUSR | S_IWUSR), 0);
    }

    /// Runs the roles, each in a process on a host of its own. This process calls no verbs.
    void connect(const ServerRole& serve, const ClientRole& use) {
        const pid_t client = ::fork();
        if (client == 0) {
            ::alarm(2 * time_limit.count());
            ::_exit(be_client(serve, use));
        }
        int status = -1;
        ASSERT_EQ(::waitpid(client, &status, 0), client);
        ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
        if (WEXITSTATUS(status) == missing_namespaces) {
            GTEST_SKIP() << "this process cannot create a network namespace";
        }
        EXPECT_EQ(WEXITSTATUS(status), 0);
    }

    /// An id with a resolved route to the server's host.
    [[nodiscard]] static UniqueId route(const Channel& channel, std::uint16_t port) {
        return channel.route(port, RDMA_PS_TCP, server_address);
    }
    static void request(const UniqueId& id, std::string_view private_data = {}) {
        rdma_conn_param wanted = parameters(private_data);
        EXPECT_EQ(rdma_connect(id.get(), &wanted), 0) << std::strerror(errno);
    }
    static void accept(const Channel& channel, UniqueId& id) {
        const SeenEvent request = channel.next();
        EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
        id.reset(request.id);
        rdma_conn_param reply = parameters("welcome");
        EXPECT_EQ(rdma_accept(id.get(), &reply), 0) << std::strerror(errno);
        EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ESTABLISHED);
    }
    /// The client's part of accept().
    static void establish(const Channel& channel, const UniqueId& id) {
        const SeenEvent response = channel.next();
        EXPECT_EQ(response.type, RDMA_CM_EVENT_CONNECT_RESPONSE);
        EXPECT_EQ(response.private_data, padded("welcome", 196));
        EXPECT_EQ(rdma_establish(id.get()), 0) << std::strerror(errno);
    }

  private:
    [[nodiscard]] std::string secret() const { return directory_.path() + "/secret"; }

    void set_host(const char* address, const std::string& name) const {
        const std::string directory = directory_.path() + "/" + name;
        std::filesystem::create_directory(directory);
        ::chmod(directory.c_str(), S_IRWXU);
        ::setenv("SOFTVERBS_DIR", directory.c_str(), 1);
        ::setenv("SOFTVERBS_NETWORK", "unprotected-tcp", 1);
        ::setenv("SOFTVERBS_SECRET_FILE", secret().c_str(), 1);
        ::setenv("SOFTVERBS_ADDRESS", address, 1);
        ::setenv("SOFTVERBS_CM_TIMEOUT", cm_timeout_, 1);
    }

    static bool join_cable(const char* address) {
        return run("ip link set lo up && ip link set cable up && ip addr add " +
                   std::string(address) + "/24 dev cable");
    }

    int be_client(const ServerRole& serve, const ClientRole& use) const {
        if (!enter_own_network()) {
            return missing_namespaces;
        }
        std::array<int, 2> sockets{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
        const pid_t server = ::fork();
        if (server == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::close(sockets[0]);
            ::_exit(be_server(serve, Wire(sockets[1])));
        }
        ::close(sockets[1]);
        const ServerHost host{Wire(sockets[0]), server};
        if (!host.wire.receive<bool>() ||
            !run("ip link add cable type veth peer name cable netns " + std::to_string(server)) ||
            !join_cable(client_address)) {
            return 1;
        }
        host.wire.send(true);
        set_host(client_address, "client");
        const auto port = host.wire.receive<std::uint16_t>();
        {
            const Channel channel;
            use(channel, port, host);
        }
        int status = 0;
        if (::waitpid(server, &status, 0) == server) {
            EXPECT_EQ(status, 0);
        }
        return HasFailure() ? 1 : 0;
    }

    int be_server(const ServerRole& serve, const Wire& wire) const {
        const bool made = ::unshare(CLONE_NEWNET) == 0;
        wire.send(made);
        if (!made || !wire.receive<bool>() || !join_cable(server_address)) {
            return 1;
        }
        set_host(server_address, "server");
        const Channel channel;
        const UniqueId listener = channel.listen(RDMA_PS_TCP, 8, server_address);
        wire.send<std::uint16_t>(ntohs(rdma_get_src_port(listener.get())));
        serve(channel, listener, wire);
        return HasFailure() ? 1 : 0;
    }

    TemporaryDirectory directory_;

  protected:
    /// The value of SOFTVERBS_CM_TIMEOUT on both hosts; empty: the default, 69 seconds.
    const char* cm_timeout_ = "";
};

TEST_F(CmHosts, ConnectAndDisconnect) {
    connect(
        [](const Channel& channel, const UniqueId&, const Wire&) {
            const SeenEvent request = channel.next();
            EXPECT_EQ(request.type, RDMA_CM_EVENT_CONNECT_REQUEST);
            EXPECT_EQ(request.private_data, padded("may I?", 56));
            EXPECT_EQ(request.conn.qp_num, 0x1234U);
            const UniqueId id(request.id);
            rdma_conn_param reply = parameters("welcome");
            EXPECT_EQ(rdma_accept(id.get(), &reply), 0) << std::strerror(errno);
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_ESTABLISHED);
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
            EXPECT_EQ(rdma_disconnect(id.get()), 0);
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        },
        [](const Channel& channel, std::uint16_t port, const ServerHost&) {
            const UniqueId id = route(channel, port);
            request(id, "may I?");
            establish(channel, id);
            EXPECT_EQ(rdma_disconnect(id.get()), 0);
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_TIMEWAIT_EXIT);
        });
}

TEST_F(CmHosts, RejectWithPrivateData) {
    connect(
        [](const Channel& channel, const UniqueId&, const Wire& wire) {
            const UniqueId id(channel.next().id);
            EXPECT_EQ(rdma_reject(id.get(), "busy", 4), 0);
            EXPECT_TRUE(wire.receive<bool>());
        },
        [](const Channel& channel, std::uint16_t port, const ServerHost& host) {
            const UniqueId id = route(channel, port);
            request(id);
            const SeenEvent event = channel.next();
            EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
            EXPECT_EQ(event.status, 28); // consumer defined
            EXPECT_EQ(event.private_data, padded("busy", 148));
            host.wire.send(true);
        });
}

TEST_F(CmHosts, RejectRequestsToAPortWithoutListener) {
    connect([](const Channel&, const UniqueId&,
               const Wire& wire) { EXPECT_TRUE(wire.receive<bool>()); },
            [](const Channel& channel, std::uint16_t, const ServerHost& host) {
                const UniqueId id = route(channel, 4);
                request(id);
                const SeenEvent event = channel.next();
                EXPECT_EQ(event.type, RDMA_CM_EVENT_REJECTED);
                EXPECT_EQ(event.status, 8); // invalid service ID
                host.wire.send(true);
            });
}

TEST_F(CmHosts, DisconnectWhenTheProcessOfTheOtherHostIsKilled) {
    connect(
        [](const Channel& channel, const UniqueId&, const Wire&) {
            UniqueId id;
            accept(channel, id);
            ::pause();
        },
        [](const Channel& channel, std::uint16_t port, const ServerHost& host) {
            const UniqueId id = route(channel, port);
            request(id);
            establish(channel, id);
            host.kill();
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_DISCONNECTED);
        });
}

TEST_F(CmHosts, RejectWhenTheProcessThatHasTheRequestIsKilled) {
    connect(
        [](const Channel& channel, const UniqueId&, const Wire& wire) {
            const UniqueId id(channel.next().id);
            wire.send(true);
            ::pause();
        },
        [](const Channel& channel, std::uint16_t port, const ServerHost& host) {
            const UniqueId id = route(channel, port);
            request(id);
            EXPECT_TRUE(host.wire.receive<bool>());
            host.kill();
            EXPECT_EQ(channel.next().type, RDMA_CM_EVENT_REJECTED);
        });
}

TEST_F(CmHosts, AreUnreachableWithoutTheCable) {
    cm_timeout_ = "16";
    connect([](const Channel&, const UniqueId&,
               const Wire& wire) { EXPECT_TRUE(wire.receive<bool>()); },
            [](const Channel& channel, std::uint16_t port, const ServerHost& host) {
                const UniqueId id = route(channel, port);
                EXPECT_TRUE(run("ip link set cable down"));
                const ManualClock clock;
                const auto begin = ManualClock::now();
                request(id);
                const SeenEvent event = channel.next();
                EXPECT_EQ(event.type, RDMA_CM_EVENT_UNREACHABLE);
                EXPECT_EQ(ManualClock::now() - begin,
                          16 * std::chrono::nanoseconds(4096) * (1 << 16));
                EXPECT_EQ(event.status, -ETIMEDOUT);
                host.wire.send(true);
            });
}

} // namespace
} // namespace softverbs_test
