// SPDX-License-Identifier: BSD-3-Clause
//
// The proofs of `rdmabuf doctor` with memory of the fake CUDA driver, and what the drivers of
// NVIDIA report.
#include <softverbs/softverbs.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/cuda_devices.hpp"
#include "doctor/nvml.hpp"
#include "doctor/proof.hpp"
#include "fake_driver.hpp"

namespace rdmabuf::tools::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

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
    static Proof prove_on_softverbs(const MemoryKindEntry& memory) {
        const Machine machine;
        const auto nic = std::ranges::find(machine.nics(), "soft0", &NicFiles::name);
        if (nic == machine.nics().end()) {
            throw std::runtime_error("there is no soft0");
        }
        return prove(memory, *nic, Context::open("soft0"), machine);
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
    MemoryKindEntry memfd;
    memfd.options.type = "memfd";
    memfd.name = "memfd";
    ASSERT_EQ(softverbs_fail_call("ibv_reg_dmabuf_mr", 1, EOPNOTSUPP), 0);
    const Proof refused = prove_on_softverbs(memfd);
    EXPECT_EQ(refused.verdict, Verdict::fail);
    EXPECT_THAT(refused.text, HasSubstr("ibv_reg_dmabuf_mr on soft0"));
    EXPECT_EQ(prove_on_softverbs(memfd).verdict, Verdict::pass);
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
