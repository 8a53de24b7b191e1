// SPDX-License-Identifier: BSD-3-Clause
// Each verbs call that sets up an endpoint, a channel or a registration fails once.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepared_channels_fixture.hpp"

namespace rdmabuf::testing {
namespace {

using ::testing::ElementsAreArray;

/// The verbs that the library may call during set-up.
constexpr auto verbs =
    std::to_array({"ibv_get_device_list",    "ibv_open_device",     "ibv_query_device",
                   "ibv_query_device_ex",    "ibv_query_port",      "ibv_query_gid",
                   "ibv_query_gid_ex",       "ibv_query_gid_table", "ibv_query_pkey",
                   "ibv_query_rt_values_ex", "ibv_alloc_pd",        "ibv_create_comp_channel",
                   "ibv_create_cq",          "ibv_create_cq_ex",    "ibv_resize_cq",
                   "ibv_create_srq",         "ibv_create_srq_ex",   "ibv_reg_mr",
                   "ibv_reg_dmabuf_mr",      "ibv_create_qp",       "ibv_create_qp_ex",
                   "ibv_query_qp",           "ibv_modify_qp",       "ibv_create_ah",
                   "ibv_post_recv",          "ibv_post_srq_recv",   "ibv_post_send",
                   "ibv_req_notify_cq"});

/// What an attempt of set-up has reported.
struct Reported {
    ErrorInfo left{};
    ErrorInfo right{};
    [[nodiscard]] bool failed() const { return left.error() != 0 || right.error() != 0; }
};

class SetupFaults;

/// One part of set-up.
struct Part {
    const char* name;
    Reported (*attempt)(SetupFaults& test);
    /// The verbs whose failure is reported, in the order of `verbs`.
    std::vector<std::string> reported;
    /// The verbs whose failure has no effect, because the library tries again later.
    std::vector<std::string> repeated = {};
    /// True if both ends make the same calls.
    bool two_ends = false;
    /// The errno value that is reported for EAGAIN, which Connector and Listener use to report that
    /// they wait for the peer.
    int instead_of_eagain = EAGAIN;
};
void PrintTo(const Part& part, std::ostream* out) { // NOLINT(readability-identifier-naming)
    *out << part.name;
}

class SetupFaults : public PreparedChannels, public ::testing::WithParamInterface<Part> {
  public:
    SetupFaults() {
        options_.inline_data = 0; // Otherwise a failed ibv_create_qp is tried again without it.
        options_.receive_buffers = 16;
        options_.queue_pairs_per_device = 4; // The completion queues become longer.
    }
    Reported open_endpoint() {
        auto opened = attempt([&] { return Context::open_first(); });
        if (!opened) {
            return {.left = opened.error_info()};
        }
        auto end = Endpoint::open(*opened, resolver_, options_);
        if (!end) {
            return {.left = end.error_info()};
        }
        left_end_.emplace(*std::move(end));
        return {};
    }
    Reported connect_by_handle() {
        transport::Listener listener = listen();
        auto connector = left_end().start_connect(listener.handle());
        EXPECT_TRUE(connector.ok()) << connector.message();
        std::error_code near = code(EAGAIN);
        std::error_code far = code(EAGAIN);
        EXPECT_TRUE(eventually([&] {
            near = near == code(EAGAIN) ? connector->try_connect(left_) : near;
            far = far == code(EAGAIN) ? listener.try_accept(right_) : far;
            return near != code(EAGAIN) && far != code(EAGAIN);
        })) << "an end has neither connected nor failed";
        Reported reported;
        if (near) {
            reported.left = connector->error_info();
        }
        if (far) {
            reported.right = listener.error_info();
        }
        return reported;
    }
    Reported connect_by_addresses() {
        auto left = left_end().prepare_channel();
        auto right = right_end().prepare_channel();
        if (!left || !right) {
            return {.left = left ? ErrorInfo() : left.error_info(),
                    .right = right ? ErrorInfo() : right.error_info()};
        }
        const ChannelAddress left_address = left->address();
        auto left_channel = std::move(*left).connect(right->address());
        auto right_channel = std::move(*right).connect(left_address);
        if (left_channel && right_channel) {
            left_.emplace(*std::move(left_channel));
            right_.emplace(*std::move(right_channel));
        }
        return {.left = left_channel ? ErrorInfo() : left_channel.error_info(),
                .right = right_channel ? ErrorInfo() : right_channel.error_info()};
    }
    /// Registers host memory, and leases memory of a dma-buf, which needs loopback queue pairs.
    Reported register_memory() {
        auto host = left_end().register_memory(host_.data(), host_.size());
        if (!host) {
            return {.left = host.error_info()};
        }
        auto dmabuf = left_end().register_memory(reinterpret_cast<const void*>(buffer_.address()),
                                                 buffer_.size());
        if (!dmabuf) {
            return {.left = dmabuf.error_info()};
        }
        return {};
    }

  protected:
    void TearDown() override { disconnect(); }

    /// The endpoints, for all parts except the one that opens them.
    void begin() {
        disconnect();
        if (std::string_view(GetParam().name) != "endpoint") {
            open();
        }
    }
    /// Sends a message, if the part has connected a channel.
    void pass_a_message() {
        if (left_ && right_) {
            std::optional<TestMemory> from = left_memory(100);
            std::optional<TestMemory> to = right_memory(100);
            from->fill(pattern(100));
            pass(*from, *to, 100);
            // The cache would keep the registrations.
            const std::uintptr_t from_address = from->memory().address();
            const std::uintptr_t to_address = to->memory().address();
            from.reset();
            to.reset();
            left_end().cache().invalidate(from_address, 100);
            right_end().cache().invalidate(to_address, 100);
        }
    }
    /// Attempts the part without a planned failure. @return the reserved completion queue entries
    /// of the ends of a channel, and the live objects, after the channel was closed
    std::vector<std::size_t> succeed() {
        const Reported reported = GetParam().attempt(*this);
        EXPECT_FALSE(reported.failed()) << reported.left.message() << reported.right.message();
        pass_a_message();
        std::vector<std::size_t> live;
        for (std::optional<Channel>* const channel : {&left_, &right_}) {
            if (*channel) {
                const auto& rail = *(*channel)->endpoint()->shared.rails[0];
                channel->reset();
                live.push_back(rail.cq_reserved);
            }
        }
        for (int kind = 0; kind < SOFTVERBS_KINDS; ++kind) {
            live.push_back(softverbs_live(static_cast<softverbs_kind>(kind)));
        }
        return live;
    }
    /// Expects that the end whose call has failed reports the errno value and the verb. If the
    /// other end has also failed, it reports the same errno value, and that its peer has failed.
    /// @return the ends that report a call of their own, as a number of the left and of the right
    static std::pair<unsigned, unsigned> check(const Reported& reported, const std::string& verb,
                                               int error) {
        const auto is_own = [&](const ErrorInfo& info) -> unsigned {
            if (info.error() == 0) {
                return 0;
            }
            EXPECT_EQ(info.error(), error) << info.message();
            const bool of_peer = info.message().find("the peer could not") != std::string::npos;
            EXPECT_TRUE(of_peer || info.message().find(verb) != std::string::npos)
                << info.message();
            return of_peer ? 0 : 1;
        };
        const std::pair ends(is_own(reported.left), is_own(reported.right));
        EXPECT_EQ(ends.first + ends.second, 1U)
            << reported.left.message() << " / " << reported.right.message();
        return ends;
    }

    std::vector<std::byte> host_ = std::vector<std::byte>(20000);
    Buffer buffer_ = memfds_->allocate(20000);
};

const auto parts = std::to_array<Part>(
    {{.name = "endpoint",
      .attempt = [](SetupFaults& test) { return test.open_endpoint(); },
      .reported = {"ibv_get_device_list", "ibv_open_device", "ibv_query_device_ex",
                   "ibv_query_port", "ibv_alloc_pd", "ibv_create_comp_channel", "ibv_create_cq",
                   "ibv_resize_cq", "ibv_create_srq", "ibv_reg_mr", "ibv_post_srq_recv"}},
     {.name = "channel",
      .attempt = [](SetupFaults& test) { return test.connect_by_handle(); },
      .reported = {"ibv_query_device_ex", "ibv_query_port", "ibv_query_gid_table", "ibv_create_qp",
                   "ibv_modify_qp"},
      .two_ends = true,
      .instead_of_eagain = EBUSY},
     {.name = "prepared_channel",
      .attempt = [](SetupFaults& test) { return test.connect_by_addresses(); },
      .reported = {"ibv_query_device_ex", "ibv_query_port", "ibv_query_gid_table", "ibv_resize_cq",
                   "ibv_reg_mr", "ibv_create_qp", "ibv_modify_qp", "ibv_create_ah",
                   "ibv_post_recv"},
      .repeated = {"ibv_post_send"},
      .two_ends = true},
     {.name = "memory",
      .attempt = [](SetupFaults& test) { return test.register_memory(); },
      .reported = {"ibv_query_device_ex", "ibv_query_port", "ibv_query_gid_table", "ibv_reg_mr",
                   "ibv_reg_dmabuf_mr", "ibv_create_qp", "ibv_modify_qp"}}});

INSTANTIATE_TEST_SUITE_P(of, SetupFaults, ::testing::ValuesIn(parts),
                         [](const auto& value) { return std::string(value.param.name); });

TEST_P(SetupFaults, are_reported_leak_nothing_and_do_not_prevent_the_next_attempt) {
    const Part& part = GetParam();
    begin();
    const std::vector<std::size_t> live = succeed();
    std::vector<std::string> reported;
    std::vector<std::string> repeated;
    constexpr std::array errors = {ENOMEM, EINVAL, EAGAIN};
    for (const char* const verb : verbs) {
        unsigned calls = 0;
        unsigned failures = 0;
        std::pair<unsigned, unsigned> ends;
        const auto fail = [&](unsigned n, int error) {
            SCOPED_TRACE(std::string(verb) + "#" + std::to_string(n) + "=" + std::to_string(error));
            begin();
            ASSERT_EQ(softverbs_fail_call(verb, n, error), 0);
            const Reported result = part.attempt(*this);
            if (!all_failed()) {
                softverbs_clear_faults();
                EXPECT_FALSE(result.failed());
                return;
            }
            ++calls;
            if (result.failed()) {
                ++failures;
                const auto own =
                    check(result, verb, error == EAGAIN ? part.instead_of_eagain : error);
                ends.first += own.first;
                ends.second += own.second;
                if (std::string_view(part.name) == "channel") {
                    EXPECT_TRUE(result.left.error() != 0 && result.right.error() != 0)
                        << "one end has not learned that the other has failed";
                }
            } else {
                pass_a_message();
            }
            left_.reset();
            right_.reset();
            EXPECT_EQ(succeed(), live);
        };
        // The first call fails with each errno value, the others with one of them.
        for (const int error : errors) {
            fail(1, error);
        }
        for (unsigned n = 2; calls == n + 1; ++n) {
            ASSERT_LT(n, 500U);
            fail(n, errors.at(n % errors.size()));
        }
        if (calls == 0) {
            continue;
        }
        EXPECT_TRUE(failures == 0 || failures == calls) << verb;
        (failures == 0 ? repeated : reported).emplace_back(verb);
        if (part.two_ends && failures != 0) {
            EXPECT_GT(ends.first, 0U) << verb;
            EXPECT_GT(ends.second, 0U) << verb;
        }
    }
    EXPECT_THAT(reported, ElementsAreArray(part.reported));
    EXPECT_THAT(repeated, ElementsAreArray(part.repeated));
}

} // namespace
} // namespace rdmabuf::testing
