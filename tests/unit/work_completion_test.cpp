// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rdmabuf/completion_queue.hpp>
#include <rdmabuf/work_request.hpp>

namespace rdmabuf {
namespace {

using ::testing::HasSubstr;

WorkCompletion failed(ibv_wc_status status) {
    WorkCompletion completion{};
    completion.wr_id = 7;
    completion.qp_num = 17;
    completion.status = status;
    return completion;
}

TEST(WorkCompletion, SucceedsWithOneStatusOnly) {
    EXPECT_TRUE(succeeded(failed(IBV_WC_SUCCESS)));
    EXPECT_FALSE(succeeded(failed(IBV_WC_WR_FLUSH_ERR)));
}

TEST(WorkCompletion, GivesImmediateDataInHostByteOrder) {
    WorkCompletion completion = failed(IBV_WC_SUCCESS);
    completion.imm_data = make_send_imm({}, 0x01020304).imm_data;
    EXPECT_EQ(immediate(completion), 0x01020304U);
}

TEST(WorkCompletion, IsDescribedByRequestQueuePairStatusAndHint) {
    EXPECT_EQ(describe(failed(IBV_WC_RNR_RETRY_EXC_ERR)),
              std::string("wr_id 7 on QP 17: ") + ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR) +
                  ": the peer had no receive posted in time: the peer must post more receives, or "
                  "this side must allow more retries with rnr_retry (7: no limit)");
}

TEST(WorkCompletion, OfSuccessNeedsNoHint) {
    EXPECT_STREQ(completion_hint(IBV_WC_SUCCESS), "");
    EXPECT_EQ(describe(failed(IBV_WC_SUCCESS)),
              std::string("wr_id 7 on QP 17: ") + ibv_wc_status_str(IBV_WC_SUCCESS));
}

TEST(WorkCompletion, HintsSayWhatToLookAt) {
    EXPECT_THAT(completion_hint(IBV_WC_LOC_LEN_ERR), HasSubstr("receive"));
    EXPECT_THAT(completion_hint(IBV_WC_LOC_PROT_ERR), HasSubstr("lkey"));
    EXPECT_THAT(completion_hint(IBV_WC_WR_FLUSH_ERR), HasSubstr("first failed completion"));
    EXPECT_THAT(completion_hint(IBV_WC_BAD_RESP_ERR), HasSubstr("unexpected"));
    EXPECT_THAT(completion_hint(IBV_WC_LOC_ACCESS_ERR), HasSubstr("local_write"));
    EXPECT_THAT(completion_hint(IBV_WC_MW_BIND_ERR), HasSubstr("memory_window_bind"));
    EXPECT_THAT(completion_hint(IBV_WC_REM_INV_REQ_ERR), HasSubstr("receive is too small"));
    EXPECT_THAT(completion_hint(IBV_WC_REM_ACCESS_ERR), HasSubstr("rkey"));
    EXPECT_THAT(completion_hint(IBV_WC_REM_INV_RD_REQ_ERR),
                HasSubstr("does not exist, or has another Q_Key"));
    EXPECT_THAT(completion_hint(IBV_WC_REM_OP_ERR),
                HasSubstr("on EFA, the target has no address handle"));
    EXPECT_THAT(completion_hint(IBV_WC_RETRY_EXC_ERR), HasSubstr("GID index"));
    EXPECT_THAT(completion_hint(IBV_WC_FATAL_ERR), HasSubstr("device"));
    EXPECT_STREQ(completion_hint(IBV_WC_GENERAL_ERR), "");
}

} // namespace
} // namespace rdmabuf
