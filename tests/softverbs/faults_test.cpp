// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "verbs_test.hpp"

namespace {

using softverbs_test::UniqueMr;
using softverbs_test::VerbsTest;

/// An errno that is not used otherwise.
constexpr int planned = EXFULL;

int failed(const void* made) {
    return made == nullptr ? errno : 0;
}
int failed(int result) {
    return result == -1 ? errno : result;
}

/// Creates one object of each kind, so that each verb can be called.
class FaultsTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        channel = ibv_create_comp_channel(context.get());
        cq = ibv_create_cq(context.get(), 8, nullptr, channel, 0);
        auto init = qp_attributes(IBV_QPT_RC, cq);
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = IBV_QP_EX_WITH_SEND;
        qp = ibv_create_qp_ex(context.get(), &init);
        ASSERT_NE(qp, nullptr);
        connect(qp, qp->qp_num);
        ibv_srq_init_attr srq_init{};
        srq_init.attr.max_wr = srq_init.attr.max_sge = 1;
        srq = ibv_create_srq(pd.get(), &srq_init);
        mr = reg();
        ibv_alloc_dm_attr dm_attr{64, 0, 0};
        dm = ibv_alloc_dm(context.get(), &dm_attr);
        mw = ibv_alloc_mw(pd.get(), IBV_MW_TYPE_1);
        address = own_address();
        ah = ibv_create_ah(pd.get(), &address);
        for (const void* made :
             std::initializer_list<const void*>{channel, cq, srq, mr, dm, mw, ah}) {
            ASSERT_NE(made, nullptr);
        }
    }
    void TearDown() override {
        EXPECT_EQ(softverbs_pending_faults(), 0U);
        softverbs_clear_faults();
        EXPECT_EQ(ibv_destroy_ah(ah), 0);
        EXPECT_EQ(ibv_dealloc_mw(mw), 0);
        EXPECT_EQ(ibv_free_dm(dm), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }

    ibv_mr* reg(int access = IBV_ACCESS_LOCAL_WRITE) {
        return ibv_reg_mr(pd.get(), memory.data(), memory.size(), access);
    }

    /// Returns a function for each verb that creates, modifies or queries something. It returns the
    /// errno.
    [[nodiscard]] std::map<std::string, std::function<int()>> calls() {
        std::map<std::string, std::function<int()>> all;
        add_devices(all);
        add_memory(all);
        add_queues(all);
        add_data_path(all);
        return all;
    }
    void add_devices(std::map<std::string, std::function<int()>>& all) {
        ibv_context* const c = context.get();
        all["get_device_list"] = [] { return failed(ibv_get_device_list(nullptr)); };
        all["open_device"] = [c] { return failed(ibv_open_device(c->device)); };
        all["query_device"] = [c] {
            ibv_device_attr attr{};
            return ibv_query_device(c, &attr);
        };
        all["query_device_ex"] = [c] {
            ibv_device_attr_ex attr{};
            return ibv_query_device_ex(c, nullptr, &attr);
        };
        all["query_port"] = [c] {
            ibv_port_attr attr{};
            return ibv_query_port(c, 1, &attr);
        };
        all["query_rt_values_ex"] = [c] {
            ibv_values_ex values{};
            return ibv_query_rt_values_ex(c, &values);
        };
        all["query_gid"] = [c] {
            ibv_gid gid{};
            return failed(ibv_query_gid(c, 1, 0, &gid));
        };
        all["query_gid_ex"] = [c] {
            ibv_gid_entry entry{};
            return ibv_query_gid_ex(c, 1, 0, &entry, 0);
        };
        all["query_gid_table"] = [c] {
            std::array<ibv_gid_entry, 4> entries{};
            return -static_cast<int>(ibv_query_gid_table(c, entries.data(), entries.size(), 0));
        };
        all["query_pkey"] = [c] {
            __be16 pkey = 0;
            return failed(ibv_query_pkey(c, 1, 0, &pkey));
        };
        all["get_async_event"] = [c] {
            ibv_async_event event{};
            return failed(ibv_get_async_event(c, &event));
        };
        all["alloc_pd"] = [c] { return failed(ibv_alloc_pd(c)); };
    }
    void add_memory(std::map<std::string, std::function<int()>>& all) {
        ibv_pd* const p = pd.get();
        all["reg_mr"] = [this] { return failed(reg()); };
        all["reg_dmabuf_mr"] = [p] { return failed(ibv_reg_dmabuf_mr(p, 0, 4096, 0, -1, 0)); };
        all["rereg_mr"] = [this, p] {
            return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, p, nullptr, 0, 0) != 0 ? errno : 0;
        };
        all["alloc_null_mr"] = [p] { return failed(ibv_alloc_null_mr(p)); };
        all["advise_mr"] = [this, p] {
            ibv_sge entry{mr->lkey, 1, mr->lkey};
            return ibv_advise_mr(p, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &entry, 1);
        };
        all["alloc_dm"] = [this] {
            ibv_alloc_dm_attr attr{64, 0, 0};
            return failed(ibv_alloc_dm(context.get(), &attr));
        };
        all["reg_dm_mr"] = [this, p] {
            return failed(ibv_reg_dm_mr(p, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
        };
        all["memcpy_to_dm"] = [this] { return ibv_memcpy_to_dm(dm, 0, memory.data(), 8); };
        all["memcpy_from_dm"] = [this] { return ibv_memcpy_from_dm(memory.data(), dm, 0, 8); };
        all["import_dm"] = [this] { return failed(ibv_import_dm(context.get(), dm->handle)); };
        all["dm_export_dmabuf_fd"] = [this] {
            // Programs that were built with older headers look the function up in this way.
            const auto export_fd = reinterpret_cast<int (*)(ibv_dm*)>(
                ::dlvsym(RTLD_DEFAULT, "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16"));
            return export_fd == nullptr ? -1 : failed(export_fd(dm));
        };
        all["alloc_mw"] = [p] { return failed(ibv_alloc_mw(p, IBV_MW_TYPE_1)); };
    }
    void add_queues(std::map<std::string, std::function<int()>>& all) {
        ibv_context* const c = context.get();
        ibv_pd* const p = pd.get();
        all["create_comp_channel"] = [c] { return failed(ibv_create_comp_channel(c)); };
        all["create_cq"] = [c] { return failed(ibv_create_cq(c, 1, nullptr, nullptr, 0)); };
        all["create_cq_ex"] = [c] {
            ibv_cq_init_attr_ex attr{};
            attr.cqe = 1;
            return failed(ibv_create_cq_ex(c, &attr));
        };
        all["resize_cq"] = [this] { return ibv_resize_cq(cq, 16); };
        all["modify_cq"] = [this] {
            ibv_modify_cq_attr attr{};
            return ibv_modify_cq(cq, &attr);
        };
        all["get_cq_event"] = [this] {
            ibv_cq* from = nullptr;
            void* cookie = nullptr;
            return failed(ibv_get_cq_event(channel, &from, &cookie));
        };
        all["create_qp"] = [this] {
            auto init = qp_attributes(IBV_QPT_RC, cq);
            return failed(ibv_create_qp_ex(context.get(), &init));
        };
        all["create_qp_ex"] = [this] {
            auto init = qp_attributes(IBV_QPT_RC, cq);
            init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            return failed(ibv_create_qp_ex(context.get(), &init));
        };
        all["modify_qp"] = [this] {
            ibv_qp_attr attr{};
            return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
        };
        all["query_qp"] = [this] {
            ibv_qp_attr attr{};
            ibv_qp_init_attr init{};
            return ibv_query_qp(qp, &attr, 0, &init);
        };
        all["attach_mcast"] = [this] { return ibv_attach_mcast(qp, nullptr, 0); };
        all["create_srq"] = [p] {
            ibv_srq_init_attr init{};
            return failed(ibv_create_srq(p, &init));
        };
        all["create_srq_ex"] = [this] {
            ibv_srq_init_attr_ex init{};
            return failed(ibv_create_srq_ex(context.get(), &init));
        };
        all["modify_srq"] = [this] {
            ibv_srq_attr attr{};
            return ibv_modify_srq(srq, &attr, 0);
        };
        all["query_srq"] = [this] {
            ibv_srq_attr attr{};
            return ibv_query_srq(srq, &attr);
        };
        all["create_ah"] = [this, p] {
            ibv_ah_attr attr = address;
            return failed(ibv_create_ah(p, &attr));
        };
    }
    void add_data_path(std::map<std::string, std::function<int()>>& all) {
        all["post_send"] = [this] {
            ibv_send_wr request{};
            ibv_send_wr* bad = nullptr;
            const int error = ibv_post_send(qp, &request, &bad);
            EXPECT_EQ(bad, &request);
            return error;
        };
        all["post_recv"] = [this] {
            ibv_recv_wr request{};
            ibv_recv_wr* bad = nullptr;
            const int error = ibv_post_recv(qp, &request, &bad);
            EXPECT_EQ(bad, &request);
            return error;
        };
        all["post_srq_recv"] = [this] {
            ibv_recv_wr request{};
            ibv_recv_wr* bad = nullptr;
            return ibv_post_srq_recv(srq, &request, &bad);
        };
        all["req_notify_cq"] = [this] { return ibv_req_notify_cq(cq, 0); };
        all["bind_mw"] = [this] {
            ibv_mw_bind bind{};
            return ibv_bind_mw(qp, mw, &bind);
        };
        all["wr_complete"] = [this] {
            ibv_qp_ex* const extended = ibv_qp_to_qp_ex(qp);
            ibv_wr_start(extended);
            ibv_wr_send(extended);
            return ibv_wr_complete(extended);
        };
    }

    std::array<char, 4096> memory{};
    ibv_comp_channel* channel = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_srq* srq = nullptr;
    ibv_mr* mr = nullptr;
    ibv_dm* dm = nullptr;
    ibv_mw* mw = nullptr;
    ibv_ah* ah = nullptr;
    ibv_ah_attr address{};
};

TEST_F(FaultsTest, MakeEveryCallFailOnceWithTheErrorPlannedNamedOrNot) {
    const std::size_t live = softverbs_live(SOFTVERBS_KINDS);
    for (const auto& [verb, call] : calls()) {
        for (const char* const name : {verb.c_str(), static_cast<const char*>(nullptr)}) {
            SCOPED_TRACE(verb + (name == nullptr ? ", not named" : ""));
            ASSERT_EQ(softverbs_fail_call(name, 1, planned), 0);
            EXPECT_EQ(call(), planned);
            EXPECT_EQ(softverbs_pending_faults(), 0U);
            softverbs_clear_faults();
        }
    }
    EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), live);
    EXPECT_EQ(qp->state, IBV_QPS_RTS);
}

TEST_F(FaultsTest, MakeCallsThatDestroyFailOnlyWhenTheyAreNamed) {
    const std::map<std::string, std::function<int()>> all{
        {"close_device", [this] { return ibv_close_device(context.get()); }},
        {"dealloc_pd", [this] { return ibv_dealloc_pd(pd.get()); }},
        {"dereg_mr", [this] { return ibv_dereg_mr(mr); }},
        {"dealloc_mw", [this] { return ibv_dealloc_mw(mw); }},
        {"free_dm", [this] { return ibv_free_dm(dm); }},
        {"destroy_ah", [this] { return ibv_destroy_ah(ah); }},
        {"destroy_comp_channel", [this] { return ibv_destroy_comp_channel(channel); }},
        {"destroy_cq", [this] { return ibv_destroy_cq(cq); }},
        {"destroy_qp", [this] { return ibv_destroy_qp(qp); }},
        {"destroy_srq", [this] { return ibv_destroy_srq(srq); }},
    };
    for (const auto& [verb, call] : all) {
        SCOPED_TRACE(verb);
        ASSERT_EQ(softverbs_fail_call(verb.c_str(), 1, planned), 0);
        EXPECT_EQ(call(), planned);
    }
    ASSERT_EQ(softverbs_fail_call(nullptr, 1, planned), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(softverbs_pending_faults(), 1U);
    mr = reg();
    EXPECT_EQ(mr, nullptr);
    mr = reg();
    ASSERT_NE(mr, nullptr);
}

TEST_F(FaultsTest, CountTheCallsOfTheirVerbOnly) {
    ASSERT_EQ(softverbs_fail_call("ibv_reg_mr", 2, planned), 0);
    const auto reg_with_iova = [this] {
        return UniqueMr(ibv_reg_mr_iova2(pd.get(), memory.data(), memory.size(),
                                         reinterpret_cast<std::uintptr_t>(memory.data()), 0));
    };
    EXPECT_NE(reg_with_iova(), nullptr);
    EXPECT_EQ(ibv_resize_cq(cq, 16), 0);
    EXPECT_EQ(reg_with_iova(), nullptr); // the second, by whichever of its names
    EXPECT_EQ(errno, planned);
    EXPECT_NE(reg_with_iova(), nullptr);
}

TEST_F(FaultsTest, LeaveARegionThatCouldNotBeChangedAsItWas) {
    ASSERT_EQ(softverbs_fail_call("rereg_mr", 1, planned), 0);
    const ibv_mr before = *mr;
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, memory.data(), 64, 0),
              IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(errno, planned);
    EXPECT_EQ(mr->lkey, before.lkey);
    EXPECT_EQ(mr->length, before.length);
}

TEST_F(FaultsTest, CanBeAskedForByText) {
    ASSERT_EQ(softverbs_set_faults("alloc_pd#2=ENOSPC,ibv_create_ah=EPERM,packet#9=delay:5"), 0);
    EXPECT_EQ(softverbs_pending_faults(), 3U);
    ibv_pd* const first = ibv_alloc_pd(context.get());
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(ibv_dealloc_pd(first), 0);
    EXPECT_EQ(ibv_alloc_pd(context.get()), nullptr);
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_EQ(ibv_create_ah(pd.get(), &address), nullptr);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(softverbs_pending_faults(), 1U);
    softverbs_clear_faults();
}

TEST_F(FaultsTest, ThatCannotBeAreRefusedAndChangeNothing) {
    ASSERT_EQ(softverbs_fail_call("alloc_pd", 1, ENOMEM), 0);
    for (const char* const text : {"alloc_pdd=ENOMEM",    "alloc_pd=ENOSUCH",
                                   "alloc_pd#=ENOMEM",    "alloc_pd#0=ENOMEM",
                                   "alloc_pd#x=ENOMEM",   "alloc_pd",
                                   "packet#1=lost",       "packet#1=drop:",
                                   "packet#1=delay:x",    "dm=full",
                                   "alloc_mw=ENOMEM,",    "alloc_mw=ENOMEM,=",
                                   "port=sideways",       "port",
                                   "port=down@",          "port=down@5",
                                   "port:x=down",         "port:0/0=down",
                                   "port:0/256=down",     "port=flap:0ms*1",
                                   "port=flap:5ms",       "port=flap:5ms*0",
                                   "port=flap:60001ms*1", "device=down",
                                   "device:0/1=reset",    "device=reset@soon",
                                   "slow:20ms=",          "slow:5"}) {
        EXPECT_EQ(softverbs_set_faults(text), EINVAL) << text;
    }
    EXPECT_EQ(softverbs_set_faults("port:1=down"), ENODEV);
    EXPECT_EQ(softverbs_set_faults("port:0/2=down"), ENODEV);
    EXPECT_EQ(softverbs_set_faults("device:1=reset"), ENODEV);
    EXPECT_EQ(softverbs_pending_faults(), 1U);
    softverbs_clear_faults();
    EXPECT_EQ(softverbs_fail_call("no_such_verb", 1, ENOMEM), EINVAL);
    EXPECT_EQ(softverbs_fail_call("alloc_pd", 0, ENOMEM), EINVAL);
    EXPECT_EQ(softverbs_fail_call("alloc_pd", 1, 0), EINVAL);
    EXPECT_EQ(softverbs_fail_packet(SOFTVERBS_PACKET_DROP, 0, 0), EINVAL);
}

} // namespace
