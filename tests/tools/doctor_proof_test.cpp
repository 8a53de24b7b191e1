// SPDX-License-Identifier: BSD-3-Clause
//
// The proofs of `rdmabuf doctor` with memory of the fake CUDA driver, and what the drivers of
// NVIDIA report.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/cuda_devices.hpp"
#include "doctor/proof.hpp"
#include "doctor/report.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::tools::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Changes each send request of the device before softverbs gets it, until the object is destroyed.
class ChangedRequests {
  public:
    using Change = std::function<void(ibv_send_wr& request, ibv_sge& local)>;

    explicit ChangedRequests(Change change) {
        change_with = std::move(change);
        original = context_.native()->ops.post_send;
        context_.native()->ops.post_send = post;
    }
    ~ChangedRequests() { context_.native()->ops.post_send = original; }
    ChangedRequests(const ChangedRequests&) = delete;
    ChangedRequests& operator=(const ChangedRequests&) = delete;

    [[nodiscard]] const Context& context() const noexcept { return context_; }

  private:
    static int post(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
        if (request->num_sge != 1 || request->next != nullptr) {
            throw std::logic_error("not a single request");
        }
        ibv_send_wr changed = *request;
        ibv_sge local = *request->sg_list;
        changed.sg_list = &local;
        change_with(changed, local);
        return original(qp, &changed, bad);
    }

    static inline Change change_with;
    static inline int (*original)(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) = nullptr;
    Context context_ = Context::open("soft0");
};

class DoctorProofTest : public ::testing::Test {
  protected:
    void SetUp() override { fake_driver::reset(2); }
    void TearDown() override { fake_driver::reset(1); }

    static MemoryKindEntry cuda(int gpu) {
        MemoryKindEntry entry;
        entry.options.type = "cuda";
        entry.options.gpu = gpu;
        entry.name = "cuda:" + std::to_string(gpu);
        return entry;
    }
    static MemoryKindEntry memfd() {
        MemoryKindEntry entry;
        entry.options.type = "memfd";
        entry.name = "memfd";
        return entry;
    }
    static Proof prove_on_softverbs(const MemoryKindEntry& memory,
                                    const Context& context = Context::open("soft0")) {
        const Machine machine;
        const auto nic = std::ranges::find(machine.nics(), "soft0", &NicFiles::name);
        if (nic == machine.nics().end()) {
            throw std::runtime_error("there is no soft0");
        }
        return prove(memory, *nic, context, machine);
    }
    /// Makes a proof whose requests @p change changes.
    static Proof prove_with(ChangedRequests::Change change,
                            const MemoryKindEntry& memory = memfd()) {
        const ChangedRequests changed(std::move(change));
        return prove_on_softverbs(memory, changed.context());
    }
    /// Returns the finding of a proof that must have failed.
    static Finding finding_of(const Proof& proof) {
        EXPECT_EQ(proof.verdict, Verdict::fail);
        Finding finding = findings_of({proof}).at(0);
        EXPECT_EQ(finding.verdict, Verdict::fail);
        EXPECT_EQ(finding.found, proof.text);
        return finding;
    }
};

TEST_F(DoctorProofTest, MemoryOfEachGpuIsProven) {
    for (const int gpu : {0, 1}) {
        const Proof proof = prove_on_softverbs(cuda(gpu));
        EXPECT_EQ(proof.verdict, Verdict::pass) << proof.text;
        EXPECT_TRUE(proof.wrote);
        EXPECT_TRUE(proof.read);
        EXPECT_EQ(proof.path, "dmabuf");
        EXPECT_EQ(proof.mapping, "standard");
        EXPECT_GT(proof.bandwidth.value_or(0), 0);
        EXPECT_EQ(proof.link, std::nullopt) << "a software device has no link";
    }
}

TEST_F(DoctorProofTest, AGpuThatDoesNotExistFails) {
    const Proof proof = prove_on_softverbs(cuda(7));
    EXPECT_EQ(proof.verdict, Verdict::fail);
    EXPECT_FALSE(proof.wrote);
    EXPECT_THAT(proof.text, HasSubstr("7"));
}

TEST_F(DoctorProofTest, ARefusedRegistrationNamesTheCall) {
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, EOPNOTSUPP), 0);
    const Proof refused = prove_on_softverbs(memfd());
    EXPECT_EQ(refused.verdict, Verdict::fail);
    EXPECT_THAT(refused.text, HasSubstr("ibv_reg_dmabuf_mr on soft0"));
    EXPECT_EQ(prove_on_softverbs(memfd()).verdict, Verdict::pass);
}

TEST_F(DoctorProofTest, OtherBytesThanThoseOfTheWriteFail) {
    const auto other_bytes = [](ibv_send_wr& request, ibv_sge& local) {
        local.addr += request.opcode == IBV_WR_RDMA_WRITE ? 1 : 0;
    };
    for (const MemoryKindEntry& memory : {memfd(), cuda(0)}) {
        const Proof proof = prove_with(other_bytes, memory);
        EXPECT_EQ(proof.text, "the writes completed, but byte 1 is wrong") << memory.name;
        EXPECT_FALSE(proof.wrote);
        EXPECT_FALSE(proof.read);
        EXPECT_THAT(finding_of(proof).advice.remedy, HasSubstr("C-32"));
        EXPECT_THAT(finding_of(proof).advice.means, HasSubstr("does not arrive"));
    }
}

TEST_F(DoctorProofTest, AWriteThatIsLostFails) {
    const Proof proof = prove_with([](ibv_send_wr& request, ibv_sge& local) {
        // Only the longest of the three parts is lost.
        if (request.opcode == IBV_WR_RDMA_WRITE && local.length == 2U << 20U) {
            request.wr.rdma.remote_addr -= 4096;
            local.length = 0;
        }
    });
    EXPECT_EQ(proof.text, "the writes completed, but byte 1048581 is wrong");
    EXPECT_EQ(finding_of(proof).severity, Severity::blocks);
}

TEST_F(DoctorProofTest, AByteBesideTheWriteFails) {
    const Proof proof = prove_with([](ibv_send_wr& request, ibv_sge& local) {
        if (request.opcode == IBV_WR_RDMA_WRITE && local.length == 1) {
            local.length = 2;
        }
    });
    EXPECT_EQ(proof.text, "the writes completed, but byte 2 is wrong");
    EXPECT_FALSE(proof.wrote);
}

TEST_F(DoctorProofTest, OtherBytesThanThoseOfTheMemoryFail) {
    const Proof proof = prove_with([](ibv_send_wr& request, ibv_sge& local) {
        if (request.opcode == IBV_WR_RDMA_READ && local.length > 1) {
            request.wr.rdma.remote_addr += 1;
        }
    });
    EXPECT_TRUE(proof.wrote);
    EXPECT_FALSE(proof.read);
    EXPECT_EQ(proof.text, "the reads completed, but byte 4099 is wrong");
    EXPECT_THAT(finding_of(proof).advice.means, HasSubstr("Writes arrive and reads do not"));
}

TEST_F(DoctorProofTest, AReadThatTheDeviceRefusesHasItsStatus) {
    const Proof proof = prove_with([](ibv_send_wr& request, ibv_sge&) {
        request.wr.rdma.rkey ^= request.opcode == IBV_WR_RDMA_READ ? 0xffU : 0U;
    });
    EXPECT_TRUE(proof.wrote);
    EXPECT_FALSE(proof.read);
    EXPECT_THAT(proof.text, HasSubstr("remote access error"));
    EXPECT_THAT(finding_of(proof).advice.means, HasSubstr("Writes arrive and reads do not"));
    EXPECT_THAT(finding_of(proof).advice.remedy, HasSubstr("wrong offset"));
}

TEST_F(DoctorProofTest, AWriteWithoutAnAnswerNamesTheMappingAndTheIommu) {
    const Proof proof = prove_with([](ibv_send_wr&, ibv_sge&) {
        ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_DOWN), 0);
    });
    ASSERT_EQ(softverbs_set_port_state(0, 1, IBV_PORT_ACTIVE), 0);
    EXPECT_FALSE(proof.wrote);
    EXPECT_THAT(proof.text, HasSubstr("transport retry counter exceeded"));
    EXPECT_THAT(finding_of(proof).advice.remedy, HasSubstr("the wrong mapping (C-29)"));
}

TEST_F(DoctorProofTest, AFailureInTheStreamOfWritesFails) {
    int requests = 0;
    const Proof proof = prove_with([&requests](ibv_send_wr& request, ibv_sge&) {
        // Three parts are written and read before the bandwidth is measured.
        request.wr.rdma.rkey ^= ++requests > 6 ? 0xffU : 0U;
    });
    EXPECT_TRUE(proof.wrote);
    EXPECT_TRUE(proof.read);
    EXPECT_EQ(proof.bandwidth, std::nullopt);
    EXPECT_THAT(proof.text, HasSubstr("remote access error"));
    EXPECT_THAT(finding_of(proof).advice.means, HasSubstr("a stream of writes fails"));
}

TEST_F(DoctorProofTest, ARequestThatCannotBePostedFails) {
    for (const unsigned nth : {1U, 4U}) { // the first write and the first read
        ASSERT_EQ(softverbs_fail_call("ibv_post_send", nth, ENOMEM), 0);
        const Proof proof = prove_on_softverbs(memfd());
        EXPECT_EQ(proof.wrote, nth == 4);
        EXPECT_FALSE(proof.read);
        EXPECT_THAT(finding_of(proof).found, HasSubstr("ibv_post_send: Cannot allocate memory"));
    }
}

TEST_F(DoctorProofTest, MemoryIsExportedWithoutANic) {
    const Finding exported = prove_export(cuda(1));
    EXPECT_EQ(exported.verdict, Verdict::pass) << exported.found;
    EXPECT_EQ(exported.found, "2 MiB exported");
    EXPECT_THAT(exported.subject, ElementsAre("cuda:1"));
    constexpr int not_supported = 801; // CUDA_ERROR_NOT_SUPPORTED
    fake_driver::fail("cuMemGetHandleForAddressRange", not_supported);
    const Finding refused = prove_export(cuda(1));
    EXPECT_EQ(refused.verdict, Verdict::fail);
    EXPECT_THAT(refused.found, HasSubstr("cuMemGetHandleForAddressRange"));
    MemoryKindEntry missing = cuda(1);
    missing.missing = "there is no driver";
    EXPECT_EQ(prove_export(missing).verdict, Verdict::unknown);
}

TEST_F(DoctorProofTest, CudaReportsItsDevicesWithoutAContext) {
    const CudaDevices cuda = query_cuda_devices();
    EXPECT_EQ(cuda.reason, "");
    ASSERT_THAT(cuda.devices, SizeIs(2));
    EXPECT_EQ(cuda.devices[1].number, 1);
    EXPECT_EQ(cuda.devices[0].dmabuf, 1);
    EXPECT_EQ(cuda.devices[0].virtual_memory_rdma, 1);
    EXPECT_TRUE(PciAddress::parse(cuda.devices[0].pci_address)) << cuda.devices[0].pci_address;
    EXPECT_GE(cuda.driver_version, 11070);
    EXPECT_EQ(fake_driver::primary_references(0), 0U);
}

TEST_F(DoctorProofTest, NvmlReportsTheFreePartOfBar1) {
    const auto bar = query_bar1("0000:3b:00.0");
    ASSERT_TRUE(bar);
    EXPECT_EQ(bar->total, 131072ULL << 20U);
    EXPECT_EQ(bar->free, 7ULL << 20U);
    EXPECT_EQ(query_bar1("0000:3c:00.0"), std::nullopt);
}

} // namespace
} // namespace rdmabuf::tools::doctor
