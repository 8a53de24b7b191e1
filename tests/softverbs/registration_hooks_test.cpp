// SPDX-License-Identifier: BSD-3-Clause
// Registration and deregistration release Process::lock during system calls that programs
// intercept. UCX and registration caches intercept them.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>

#include "verbs_test.hpp"

namespace softverbs_test {
namespace {

/// The function to be called once from madvise(2), mmap(2) or munmap(2).
std::function<void()>& hook() {
    static std::function<void()> function;
    return function;
}

void call_hook() {
    if (const auto function = std::exchange(hook(), nullptr)) {
        function();
    }
}

class RegistrationHooks : public VerbsTest {
  protected:
    void TearDown() override { hook() = nullptr; }
    /// Sets a hook that calls verbs, which take Process::lock.
    void call_verbs_from_hook() {
        hook() = [this] {
            ++calls;
            ibv_device_attr attributes{};
            EXPECT_EQ(ibv_query_device(context.get(), &attributes), 0);
            ibv_pd* const other = ibv_alloc_pd(context.get());
            ASSERT_NE(other, nullptr);
            EXPECT_EQ(ibv_dealloc_pd(other), 0);
        };
    }

    unsigned calls = 0;
};

TEST_F(RegistrationHooks, MayCallVerbsFromMadviseAtRegistrationAndReregistration) {
    std::vector<std::byte> bytes(65536);
    call_verbs_from_hook();
    ibv_mr* const mr =
        ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), int{IBV_ACCESS_LOCAL_WRITE});
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(calls, 1U);
    call_verbs_from_hook();
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, bytes.data(), 4096, 0), 0);
    EXPECT_EQ(calls, 2U);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(RegistrationHooks, AProtectionDomainIsBusyWhileARegionIsRegisteredInIt) {
    std::vector<std::byte> bytes(65536);
    int error = 0;
    hook() = [&] { error = ibv_dealloc_pd(pd.get()); };
    ibv_mr* const mr =
        ibv_reg_mr(pd.get(), bytes.data(), bytes.size(), int{IBV_ACCESS_LOCAL_WRITE});
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(error, EBUSY);
    expected_violations = 1;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(RegistrationHooks, MayCallVerbsFromMmapAndMunmapWhenMemoryIsMappedAndUnmapped) {
    const int fd = ::memfd_create("buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(fd, 65536), 0);
    call_verbs_from_hook();
    ibv_mr* const mr = ibv_reg_dmabuf_mr(pd.get(), 0, 65536, 0, fd, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    call_verbs_from_hook();
    ibv_alloc_dm_attr attributes{};
    attributes.length = 4096;
    ibv_dm* const dm = ibv_alloc_dm(context.get(), &attributes);
    ASSERT_NE(dm, nullptr);
    const unsigned calls_before = calls;
    call_verbs_from_hook();
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(calls, calls_before + 1);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    ::close(fd);
}

TEST_F(RegistrationHooks, MayCallVerbsFromMadviseInARequestOnAnOnDemandRegion) {
    std::vector<std::byte> bytes(65536);
    const UniqueMr mr =
        make_mr(bytes.data(), bytes.size(), int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_ON_DEMAND);
    const UniqueCq cq = make_cq(16);
    const UniqueQp one = make_qp(IBV_QPT_RC, cq.get());
    const UniqueQp other = make_qp(IBV_QPT_RC, cq.get());
    connect(one.get(), other->qp_num);
    connect(other.get(), one->qp_num);
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(bytes.data()), 8, mr->lkey};
    ibv_recv_wr receive{1, nullptr, &sge, 1};
    ibv_recv_wr* bad_receive = nullptr;
    ASSERT_EQ(ibv_post_recv(other.get(), &receive, &bad_receive), 0);
    call_verbs_from_hook();
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND;
    send.sg_list = &sge;
    send.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(one.get(), &send, &bad), 0);
    EXPECT_EQ(poll(cq.get(), 1).at(0).status, IBV_WC_SUCCESS);
}

} // namespace
} // namespace softverbs_test

// These definitions replace those of libc for all libraries of this program.

extern "C" int madvise(void* addr, std::size_t len, int advice) noexcept {
    softverbs_test::call_hook();
    return static_cast<int>(::syscall(SYS_madvise, addr, len, advice));
}

extern "C" void* mmap(void* addr, std::size_t len, int prot, int flags, int fd,
                      off_t offset) noexcept {
    softverbs_test::call_hook();
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the system call returns an address as a number
    return reinterpret_cast<void*>(::syscall(SYS_mmap, addr, len, prot, flags, fd, offset));
}

extern "C" int munmap(void* addr, std::size_t len) noexcept {
    softverbs_test::call_hook();
    return static_cast<int>(::syscall(SYS_munmap, addr, len));
}
