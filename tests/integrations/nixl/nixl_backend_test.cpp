// SPDX-License-Identifier: BSD-3-Clause
#include <backend/backend_plugin.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "waiting.hpp"

// The backend of NIXL, loaded and called as NIXL's core does: two agents exchange their metadata as
// bytes, and transfer lists of blocks.

namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using rdmabuf::testing::eventually;

const nixlBackendPlugin& plugin() {
    static const nixlBackendPlugin* const loaded = [] {
        void* const library = ::dlopen(NIXL_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
        EXPECT_NE(library, nullptr) << ::dlerror();
        const auto init =
            reinterpret_cast<nixlBackendPlugin* (*)()>(::dlsym(library, "nixl_plugin_init"));
        EXPECT_NE(init, nullptr);
        return init();
    }();
    return *loaded;
}

/// A backend with memory, as an agent of NIXL has it.
class TestAgent {
  public:
    explicit TestAgent(const std::string& name, bool progress_thread = false,
                       nixl_b_params_t parameters = {{"host", "127.0.0.1"}})
        : name_(name) {
        nixlBackendInitParams init;
        init.localAgent = name;
        init.type = "RDMABUF";
        init.customParams = &parameters;
        init.enableProgTh = progress_thread;
        init.pthrDelay = 100;
        engine_.reset(plugin().create_engine(&init));
    }
    ~TestAgent() {
        if (memory_ != nullptr) {
            EXPECT_EQ(engine_->deregisterMem(memory_), NIXL_SUCCESS);
        }
    }
    TestAgent(const TestAgent&) = delete;
    TestAgent& operator=(const TestAgent&) = delete;

    [[nodiscard]] nixlBackendEngine& engine() { return *engine_; }
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::uint8_t* at(std::size_t offset) { return bytes_.data() + offset; }
    [[nodiscard]] nixlBackendMD* memory() const { return memory_; }

    void register_bytes(std::size_t size) {
        bytes_.assign(size, 0);
        const nixlBlobDesc range(address(0), size, 0, "");
        ASSERT_EQ(engine_->registerMem(range, DRAM_SEG, memory_), NIXL_SUCCESS);
    }
    [[nodiscard]] std::uintptr_t address(std::size_t offset) {
        return reinterpret_cast<std::uintptr_t>(at(offset));
    }
    /// Loads the connection information and the memory of another agent.
    void load(TestAgent& other) {
        std::string info;
        ASSERT_EQ(other.engine().getConnInfo(info), NIXL_SUCCESS);
        ASSERT_FALSE(info.empty());
        ASSERT_EQ(engine_->loadRemoteConnInfo(other.name(), info), NIXL_SUCCESS);
        std::string data;
        ASSERT_EQ(other.engine().getPublicData(other.memory(), data), NIXL_SUCCESS);
        nixlBackendMD* loaded = nullptr;
        ASSERT_EQ(engine_->loadRemoteMD({other.address(0), other.bytes_.size(), 0, data}, DRAM_SEG,
                                        other.name(), loaded),
                  NIXL_SUCCESS);
        remote_.reset(loaded);
    }
    [[nodiscard]] nixlBackendMD* remote() const { return remote_.get(); }

    [[nodiscard]] notif_list_t notifications() {
        notif_list_t list;
        EXPECT_EQ(engine_->getNotifs(list), NIXL_SUCCESS);
        return list;
    }

  private:
    struct Destroy {
        void operator()(nixlBackendEngine* engine) const { plugin().destroy_engine(engine); }
    };
    std::string name_;
    /// Freed after the engine, which may keep the memory registered: the data of a completed RDMA
    /// write can become visible later.
    std::vector<std::uint8_t> bytes_;
    std::unique_ptr<nixlBackendEngine, Destroy> engine_;
    nixlBackendMD* memory_ = nullptr;
    std::unique_ptr<nixlBackendMD> remote_;
};

/// Expects that the byte at @p address becomes @p expected. The completion of an RDMA write does
/// not make its data visible at the target; only a notification does.
void expect_written(const std::uint8_t* address, std::uint8_t expected) {
    const volatile std::uint8_t* const byte = address;
    EXPECT_TRUE(eventually([&] { return *byte == expected; })) << static_cast<int>(*byte);
}

class NixlBackend : public ::testing::Test {
  protected:
    static constexpr std::size_t block = 16384;

    void start(std::size_t blocks, bool progress_thread = false) {
        for (auto* agent : {&left_, &right_}) {
            *agent =
                std::make_unique<TestAgent>(agent == &left_ ? "left" : "right", progress_thread);
            ASSERT_FALSE((*agent)->engine().getInitErr());
            (*agent)->register_bytes(blocks * block);
        }
        left().load(right());
        right().load(left());
        ASSERT_EQ(left().engine().connect("right"), NIXL_SUCCESS);
    }
    [[nodiscard]] TestAgent& left() { return *left_; }
    [[nodiscard]] TestAgent& right() { return *right_; }

    /// Makes progress at both agents until the transfer has ended.
    nixl_status_t finish(TestAgent& agent, nixlBackendReqH* handle) {
        nixl_status_t status = NIXL_IN_PROG;
        const auto ended = [&] {
            status = agent.engine().checkXfer(handle);
            return status != NIXL_IN_PROG;
        };
        EXPECT_TRUE(eventually(ended, [&] { collect(); }));
        return status;
    }
    /// Makes progress at both agents, and keeps the notifications that arrive.
    void collect() {
        for (const auto& [agent, kept] : {std::pair(&left_, &to_left_), {&right_, &to_right_}}) {
            for (auto& notification : (*agent)->notifications()) {
                kept->push_back(std::move(notification));
            }
        }
    }
    /// Makes progress until @p list has @p count notifications.
    void await(const notif_list_t& list, std::size_t count) {
        ASSERT_TRUE(eventually([&] { return list.size() >= count; }, [&] { collect(); }));
        ASSERT_EQ(list.size(), count);
    }

    std::unique_ptr<TestAgent> left_;
    std::unique_ptr<TestAgent> right_;
    notif_list_t to_left_;
    notif_list_t to_right_;
};

TEST_F(NixlBackend, IsDescribedByThePlugin) {
    EXPECT_EQ(plugin().api_version, NIXL_PLUGIN_API_VERSION);
    EXPECT_STREQ(plugin().get_plugin_name(), "RDMABUF");
    EXPECT_THAT(plugin().get_backend_mems(), ElementsAre(DRAM_SEG, VRAM_SEG));
    EXPECT_EQ(plugin().get_backend_options().count("device"), 1U);
}

TEST_F(NixlBackend, ReportsADeviceThatDoesNotExistAsInitError) {
    TestAgent agent("left", false, {{"device", "mlx5_99"}});
    EXPECT_TRUE(agent.engine().getInitErr());
}

TEST_F(NixlBackend, Moves4096BlocksInOneListWithOneNotificationAndReadsThemBack) {
    constexpr std::size_t blocks = 4096;
    start(blocks);
    std::vector<std::uint8_t> expected(blocks * block);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<std::uint8_t>(i * 7 + i / block);
    }
    std::copy(expected.begin(), expected.end(), left().at(0));
    // Block i of the left agent is written to block order[i] of the right agent.
    std::vector<std::size_t> order(blocks);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(7)); // NOLINT(cert-msc51-cpp)
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    for (std::size_t i = 0; i < blocks; ++i) {
        local.addDesc({left().address(i * block), block, 0, left().memory()});
        remote.addDesc({right().address(order[i] * block), block, 0, left().remote()});
    }

    nixlBackendReqH* write = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_WRITE, local, remote, "right", write), NIXL_SUCCESS);
    nixl_opt_b_args_t arguments;
    arguments.hasNotif = true;
    arguments.notifMsg = "the blocks are written";
    ASSERT_GE(left().engine().postXfer(NIXL_WRITE, local, remote, "right", write, &arguments), 0);
    EXPECT_EQ(finish(left(), write), NIXL_SUCCESS);
    await(to_right_, 1);
    EXPECT_THAT(to_right_, ElementsAre(Pair("left", "the blocks are written")));
    for (std::size_t i = 0; i < blocks; ++i) {
        ASSERT_TRUE(std::equal(left().at(i * block), left().at(i * block) + block,
                               right().at(order[i] * block)))
            << "block " << i;
    }

    std::fill_n(left().at(0), blocks * block, std::uint8_t{0});
    nixlBackendReqH* read = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_READ, local, remote, "right", read), NIXL_SUCCESS);
    arguments.notifMsg = "the blocks are read";
    ASSERT_GE(left().engine().postXfer(NIXL_READ, local, remote, "right", read, &arguments), 0);
    EXPECT_EQ(finish(left(), read), NIXL_SUCCESS);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), left().at(0)));
    await(to_right_, 2);
    EXPECT_EQ(to_right_[1].second, "the blocks are read");
    EXPECT_TRUE(to_left_.empty());
    EXPECT_EQ(left().engine().releaseReqH(write), NIXL_SUCCESS);
    EXPECT_EQ(left().engine().releaseReqH(read), NIXL_SUCCESS);
}

TEST_F(NixlBackend, PostsATransferAgainAfterItHasEnded) {
    start(2);
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    local.addDesc({left().address(0), 100, 0, left().memory()});
    remote.addDesc({right().address(50), 100, 0, left().remote()});
    nixlBackendReqH* handle = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_WRITE, local, remote, "right", handle), NIXL_SUCCESS);
    EXPECT_EQ(left().engine().checkXfer(handle), NIXL_ERR_NOT_POSTED);
    for (std::uint8_t round = 1; round <= 3; ++round) {
        std::fill_n(left().at(0), 100, round);
        ASSERT_GE(left().engine().postXfer(NIXL_WRITE, local, remote, "right", handle), 0);
        EXPECT_EQ(finish(left(), handle), NIXL_SUCCESS);
        expect_written(right().at(50), round);
        expect_written(right().at(149), round);
        EXPECT_EQ(*right().at(49), 0);
        EXPECT_EQ(*right().at(150), 0);
    }
    EXPECT_EQ(left().engine().releaseReqH(handle), NIXL_SUCCESS);
}

TEST_F(NixlBackend, SendsNotificationsOfEveryLengthInTheirOrder) {
    start(1);
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{600},
                                     std::size_t{8192}, std::size_t{16384}}) {
        ASSERT_EQ(left().engine().genNotif("right", std::string(length, 'x')), NIXL_SUCCESS);
        ASSERT_EQ(right().engine().genNotif("left", std::string(length, 'y')), NIXL_SUCCESS);
    }
    await(to_right_, 5);
    await(to_left_, 5);
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(to_right_[i].first, "left");
        EXPECT_EQ(to_left_[i].first, "right");
        EXPECT_EQ(to_right_[i].second.size(), to_left_[i].second.size());
    }
    EXPECT_EQ(to_right_[4].second, std::string(16384, 'x'));
    EXPECT_NE(left().engine().genNotif("right", std::string(16385, 'x')), NIXL_SUCCESS);
}

TEST_F(NixlBackend, TransfersBetweenMemoryOfOneAgent) {
    start(2);
    nixlBackendMD* own = nullptr;
    ASSERT_EQ(left().engine().loadLocalMD(left().memory(), own), NIXL_SUCCESS);
    std::fill_n(left().at(0), block, std::uint8_t{9});
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    local.addDesc({left().address(0), block, 0, left().memory()});
    remote.addDesc({left().address(block), block, 0, own});
    nixlBackendReqH* handle = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_WRITE, local, remote, "left", handle), NIXL_SUCCESS);
    ASSERT_GE(left().engine().postXfer(NIXL_WRITE, local, remote, "left", handle), 0);
    EXPECT_EQ(finish(left(), handle), NIXL_SUCCESS);
    expect_written(left().at(2 * block - 1), 9);
    EXPECT_EQ(left().engine().releaseReqH(handle), NIXL_SUCCESS);
    EXPECT_EQ(left().engine().unloadMD(own), NIXL_SUCCESS);
}

TEST_F(NixlBackend, RefusesBlocksOutsideTheMemoryAndUnknownAgents) {
    start(1);
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    local.addDesc({left().address(0), block, 0, left().memory()});
    remote.addDesc({right().address(1), block, 0, left().remote()});
    nixlBackendReqH* handle = nullptr;
    EXPECT_EQ(left().engine().prepXfer(NIXL_READ, local, remote, "right", handle),
              NIXL_ERR_INVALID_PARAM);
    EXPECT_EQ(left().engine().connect("nobody"), NIXL_ERR_NOT_FOUND);
    EXPECT_EQ(left().engine().loadRemoteConnInfo("other", "no handle"), NIXL_ERR_MISMATCH);
    nixlBackendMD* loaded = nullptr;
    EXPECT_EQ(left().engine().loadRemoteMD({0, 1, 0, "no memory"}, DRAM_SEG, "right", loaded),
              NIXL_ERR_MISMATCH);
}

TEST_F(NixlBackend, FailsTransfersToAnAgentThatHasEnded) {
    start(1);
    ASSERT_EQ(left().engine().genNotif("right", "hello"), NIXL_SUCCESS);
    await(to_right_, 1);
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    local.addDesc({left().address(0), block, 0, left().memory()});
    remote.addDesc({right().address(0), block, 0, left().remote()});
    nixlBackendReqH* handle = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_WRITE, local, remote, "right", handle), NIXL_SUCCESS);
    right_.reset();
    nixl_status_t status = left().engine().postXfer(NIXL_WRITE, local, remote, "right", handle);
    EXPECT_TRUE(eventually([&] { return status != NIXL_IN_PROG; },
                           [&] { status = left().engine().checkXfer(handle); }));
    EXPECT_EQ(status, NIXL_ERR_BACKEND);
    EXPECT_EQ(left().engine().releaseReqH(handle), NIXL_SUCCESS);
    EXPECT_EQ(left().engine().disconnect("right"), NIXL_SUCCESS);
}

TEST_F(NixlBackend, MakesProgressInItsOwnThreadIfThisIsWanted) {
    start(1, true);
    std::fill_n(left().at(0), block, std::uint8_t{3});
    nixl_meta_dlist_t local(DRAM_SEG);
    nixl_meta_dlist_t remote(DRAM_SEG);
    local.addDesc({left().address(0), block, 0, left().memory()});
    remote.addDesc({right().address(0), block, 0, left().remote()});
    nixlBackendReqH* handle = nullptr;
    ASSERT_EQ(left().engine().prepXfer(NIXL_WRITE, local, remote, "right", handle), NIXL_SUCCESS);
    nixl_status_t status = left().engine().postXfer(NIXL_WRITE, local, remote, "right", handle);
    // Nobody calls the right agent: its own thread accepts the connection.
    EXPECT_TRUE(eventually([&] { return status != NIXL_IN_PROG; },
                           [&] { status = left().engine().checkXfer(handle); }));
    EXPECT_EQ(status, NIXL_SUCCESS);
    expect_written(right().at(block - 1), 3);
    EXPECT_EQ(left().engine().releaseReqH(handle), NIXL_SUCCESS);
}

} // namespace
