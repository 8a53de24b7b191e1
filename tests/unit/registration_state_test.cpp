// SPDX-License-Identifier: BSD-3-Clause
// What becomes of a registration: revocation, closing, ownership.
#include <array>
#include <memory>
#include <utility>

#include <rdmabuf/rdmabuf.hpp>

#include "registration_fixture.hpp"

namespace rdmabuf {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::fails_with;
using testing::FakeExporter;
using testing::RegistrationTest;

constexpr std::size_t size = testing::registered_size;
constexpr Access writable = testing::writable_access;

class RegistrationStateTest : public RegistrationTest {};

// State

TEST_F(RegistrationStateTest, GivesOutNoKeysOnceRevoked) {
    Registration region = device({.access = writable});
    EXPECT_TRUE(region.check());
    region.mark_revoked();
    EXPECT_EQ(region.state(), RegistrationState::revoked);
    EXPECT_EQ(region.check(), Status(ENODEV));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.lkey()); }),
                fails_with("Registration::lkey", ENODEV, "the memory was revoked"));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.rkey()); }),
                fails_with("Registration::rkey", ENODEV,
                           "the memory was revoked, and the keys are invalid"));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.sge(0, 1)); }),
                fails_with("Registration::sge", ENODEV, ""));
    EXPECT_THAT(error_of([&] { static_cast<void>(region.remote()); }),
                fails_with("Registration::remote", ENODEV, ""));
    EXPECT_NE(region.native(), nullptr);
    region.close();
    EXPECT_EQ(region.state(), RegistrationState::closed);
    region.mark_revoked();
    EXPECT_EQ(region.state(), RegistrationState::closed);
}

TEST_F(RegistrationStateTest, CompletionsOfARevokedRegionMayMeanSo) {
    WorkCompletion done{};
    for (const ibv_wc_status status :
         {IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR}) {
        done.status = status;
        EXPECT_TRUE(may_mean_revocation(done)) << status;
    }
    for (const ibv_wc_status status : {IBV_WC_SUCCESS, IBV_WC_RETRY_EXC_ERR}) {
        done.status = status;
        EXPECT_FALSE(may_mean_revocation(done)) << status;
    }
}

TEST_F(RegistrationStateTest, EventsOfARevokedRegionMayMeanSo) {
    EXPECT_TRUE(may_mean_revocation(AsyncEvent{.type = IBV_EVENT_QP_ACCESS_ERR}));
    EXPECT_TRUE(may_mean_revocation(AsyncEvent{.type = IBV_EVENT_QP_FATAL}));
    EXPECT_TRUE(may_mean_revocation(AsyncEvent{.type = IBV_EVENT_DEVICE_FATAL}));
    EXPECT_FALSE(may_mean_revocation(AsyncEvent{.type = IBV_EVENT_PORT_ACTIVE}));
}

TEST_F(RegistrationStateTest, VerifiesThatTheAllocationIsStillThere) {
    Registration region = device();
    EXPECT_EQ(region.verify(), RegistrationState::registered);
    exporter_->freed = true;
    EXPECT_EQ(region.verify(), RegistrationState::revoked);
    const unsigned finds = exporter_->finds;
    EXPECT_EQ(region.verify(), RegistrationState::revoked);
    EXPECT_EQ(exporter_->finds, finds) << "what is known is not asked again";
}

TEST_F(RegistrationStateTest, VerifiesThatNoOtherAllocationTookItsPlace) {
    Registration region = device();
    exporter_->allocation.generation = 2;
    EXPECT_EQ(region.verify(), RegistrationState::revoked);
}

TEST_F(RegistrationStateTest, VerifiesNothingOfHostMemory) {
    Registration region = register_memory(basics_.pd, resolver_, host_memory_.data(), 64);
    EXPECT_EQ(region.verify(), RegistrationState::registered);
}

TEST_F(RegistrationStateTest, VerifyDoesNotRevokePinnedHostMemoryThatItsDriverForgot) {
    // cudaHostRegister, register_memory(), cudaHostUnregister: verbs keeps the pages pinned.
    const auto pinned =
        std::make_shared<FakeExporter>(size, reinterpret_cast<std::uintptr_t>(host_memory_.data()));
    pinned->allocation.kind = MemoryKind::pinned_host;
    pinned->standard_error = ENOTSUP;
    const Resolver resolver({pinned});
    for (const RegistrationPath path : {RegistrationPath::host, RegistrationPath::on_demand}) {
        Registration region = register_memory(basics_.pd, resolver, host_memory_.data(),
                                              host_memory_.size(), {.paths = {path}});
        pinned->freed = true;
        EXPECT_EQ(region.verify(), RegistrationState::registered);
        pinned->freed = false;
        ++pinned->allocation.generation;
        EXPECT_EQ(region.verify(), RegistrationState::registered);
        EXPECT_TRUE(region.check());
    }
}

TEST_F(RegistrationStateTest, VerifyDoesNotRevokeMemoryOfAnExporterWithoutGenerations) {
    exporter_->allocation.generation = 0;
    Registration region = device();
    EXPECT_EQ(region.verify(), RegistrationState::registered);
    exporter_->freed = true;
    EXPECT_EQ(region.verify(), RegistrationState::revoked);
}

TEST_F(RegistrationStateTest, VerifiesWithTheExporterItCameFromOnly) {
    // Exporters of two VFIO devices have the same name.
    const auto second = std::make_shared<FakeExporter>(size, device_address() + 2 * size);
    const Resolver resolver({exporter_, second});
    Registration region = register_memory(basics_.pd, resolver, second->allocation.base, size);
    EXPECT_EQ(region.verify(), RegistrationState::registered);
    exporter_->freed = true;
    EXPECT_EQ(region.verify(), RegistrationState::registered);
    second->find_error = EIO;
    EXPECT_THAT(error_of([&] { static_cast<void>(region.verify()); }),
                fails_with("fakePointerGetAttribute", EIO, ""));
    EXPECT_EQ(region.state(), RegistrationState::registered);
}

TEST_F(RegistrationStateTest, CannotBeVerifiedWithoutItsExporter) {
    Registration region = device();
    resolver_ = Resolver();
    exporter_.reset();
    EXPECT_THAT(
        error_of([&] { static_cast<void>(region.verify()); }),
        fails_with("RegisteredMemory::verify", ENOENT, "the exporter 'fake' was destroyed"));
    EXPECT_EQ(region.state(), RegistrationState::registered);
}

// Closing

TEST_F(RegistrationStateTest, CloseThatFailsKeepsWhatItCouldNotGiveBackAndCanBeRepeated) {
    const std::array pds{basics_.pd, ProtectionDomain(basics_.context)};
    Registration region = register_memory(pds, resolver_, device_address(), size);
    ASSERT_EQ(softverbs_fail_call("ibv_dereg_mr", 1, EBUSY), 0);
    EXPECT_THAT(error_of([&] { region.close(); }), fails_with("ibv_dereg_mr", EBUSY, ""));
    EXPECT_EQ(region.state(), RegistrationState::registered);
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    EXPECT_EQ(region.lkey(0), region.native(0)->lkey) << "the one that stayed can be used";
    EXPECT_THAT(error_of([&] { static_cast<void>(region.lkey(1)); }),
                fails_with("Registration::lkey", EBADF, "was closed"));
    region.close();
    EXPECT_EQ(region.state(), RegistrationState::closed);
    EXPECT_EQ(region.check(), Status(EBADF));
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 0U);
    region.close(); // of nothing
    EXPECT_THAT(error_of([&] { static_cast<void>(region.lkey()); }),
                fails_with("Registration::lkey", EBADF, "was closed"));
}

TEST_F(RegistrationStateTest, CloseOfSomethingRevokedThatFailsLeavesItRevoked) {
    Registration region = device();
    region.mark_revoked();
    ASSERT_EQ(softverbs_fail_call("ibv_dereg_mr", 1, EBUSY), 0);
    EXPECT_TRUE(error_of([&] { region.close(); }));
    EXPECT_EQ(region.state(), RegistrationState::revoked);
    region.close();
}

TEST_F(RegistrationStateTest, DestructorReportsWhatItCannotGiveBack) {
    ibv_mr* left = nullptr;
    {
        const Registration region = device();
        left = region.native();
        ASSERT_EQ(softverbs_fail_call("ibv_dereg_mr", 1, EIO), 0);
    }
    EXPECT_THAT(take_teardown_failures(), ElementsAre(std::pair("ibv_dereg_mr", EIO)));
    EXPECT_EQ(ibv_dereg_mr(left), 0);
}

TEST_F(RegistrationStateTest, ReleasedRegionIsTheCallers) {
    Registration region = device();
    ibv_mr* const mine = region.release();
    EXPECT_THAT(error_of([&] { static_cast<void>(region.lkey()); }),
                fails_with("Registration::lkey", EBADF, "released"));
    region.close();
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    EXPECT_EQ(ibv_dereg_mr(mine), 0);
}

TEST_F(RegistrationStateTest, MovesWithItsState) {
    Registration region = device();
    const std::uint32_t lkey = region.lkey();
    Registration moved = std::move(region);
    EXPECT_EQ(moved.lkey(), lkey);
    EXPECT_EQ(region.state(), RegistrationState::closed); // NOLINT(bugprone-use-after-move)
    region.mark_revoked();
    region.close();
    moved.mark_revoked();
    region = std::move(moved);
    EXPECT_EQ(region.state(), RegistrationState::revoked);
    region = device();
    EXPECT_EQ(softverbs_live(SOFTVERBS_MR), 1U);
    EXPECT_TRUE(region.check());
}

} // namespace
} // namespace rdmabuf
