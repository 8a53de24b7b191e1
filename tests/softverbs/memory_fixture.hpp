// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "verbs_test.hpp"

namespace softverbs_test {

/// Pages of private memory. The page after them is not mapped.
class Pages {
  public:
    explicit Pages(std::size_t count)
        : length_(count * page()),
          data_(static_cast<std::byte*>(::mmap(nullptr, length_ + page(), PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        EXPECT_EQ(::mprotect(data_ + length_, page(), PROT_NONE), 0);
    }
    ~Pages() { ::munmap(data_, length_ + page()); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
    [[nodiscard]] std::size_t length() const { return length_; }
    void protect(int protection) const { EXPECT_EQ(::mprotect(data_, page(), protection), 0); }

  private:
    std::size_t length_;
    std::byte* data_;
};

/// Owns a memfd.
class MemFd {
  public:
    explicit MemFd(std::size_t length, unsigned flags = MFD_CLOEXEC)
        : fd_(::memfd_create("softverbs-test", flags)) {
        EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(length)), 0);
    }
    ~MemFd() { close(); }
    MemFd(const MemFd&) = delete;
    MemFd& operator=(const MemFd&) = delete;
    [[nodiscard]] int get() const { return fd_; }
    void close() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
        fd_ = -1;
    }

  private:
    int fd_;
};

inline std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator{});
}

/// Checks at the end of each test that all objects are freed.
class MemoryTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        descriptors_ = open_descriptors();
    }
    void TearDown() override { EXPECT_EQ(open_descriptors(), descriptors_); }

    /// Changes attributes of the device.
    template <class Change>
    static void change_device(const Change& change) {
        ibv_device_attr_ex attributes{};
        ASSERT_EQ(softverbs_get_device_attr(0, &attributes), 0);
        change(attributes);
        ASSERT_EQ(softverbs_set_device_attr(0, &attributes), 0);
    }

    /// Returns the errno with which a call fails, or 0 if it returns an object.
    template <class Call>
    static int error_of(const Call& call) {
        errno = 0;
        auto* const made = call();
        const int error = errno;
        if (made != nullptr) {
            destroy(made);
            return 0;
        }
        EXPECT_NE(error, 0);
        return error;
    }
    static void destroy(ibv_mr* mr) { EXPECT_EQ(ibv_dereg_mr(mr), 0); }
    static void destroy(ibv_dm* dm) { EXPECT_EQ(ibv_free_dm(dm), 0); }
    static void destroy(ibv_mw* mw) { EXPECT_EQ(ibv_dealloc_mw(mw), 0); }

    /// Registers memory with access flags that are variables. The macro ibv_reg_mr() needs
    /// constants.
    [[nodiscard]] ibv_mr* reg(void* address, std::size_t length, unsigned access) const {
        return ibv_reg_mr_iova2(pd.get(), address, length,
                                reinterpret_cast<std::uintptr_t>(address), access);
    }

  private:
    std::ptrdiff_t descriptors_ = 0;
};

constexpr unsigned full_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/// A test with two connected queue pairs of this process, and memory of the requester.
class ConnectedPairTest : public VerbsTest {
  protected:
    void SetUp() override {
        VerbsTest::SetUp();
        cq_ = make_cq(16);
        requester_ = make_qp(IBV_QPT_RC, cq_.get());
        responder_ = make_qp(IBV_QPT_RC, cq_.get());
        connect_pair();
        std::iota(local_.begin(), local_.end(), std::uint8_t{1});
        local_mr_ = make_mr(local_.data(), local_.size());
    }

    void connect_pair() {
        connect(requester_.get(), responder_->qp_num);
        connect(responder_.get(), requester_->qp_num);
    }
    /// Connects both queue pairs again after an error.
    void connect_again() {
        for (ibv_qp* const qp : {requester_.get(), responder_.get()}) {
            ASSERT_EQ(modify(qp, {}, IBV_QPS_RESET, 0), 0);
        }
        connect_pair();
    }
    [[nodiscard]] ibv_sge local(std::uint32_t length = 16) const {
        return {reinterpret_cast<std::uintptr_t>(local_.data()), length, local_mr_->lkey};
    }
    ibv_wc_status completion() {
        const std::vector<ibv_wc> completions = poll(cq_.get(), 1);
        return completions.empty() ? IBV_WC_GENERAL_ERR : completions.front().status;
    }
    ibv_wc_status run(ibv_qp* qp, ibv_send_wr request) {
        ibv_send_wr* bad = nullptr;
        request.send_flags = IBV_SEND_SIGNALED;
        EXPECT_EQ(ibv_post_send(qp, &request, &bad), 0);
        return completion();
    }
    ibv_wc_status rdma(ibv_wr_opcode opcode, ibv_sge entry, std::uint32_t rkey,
                       std::uint64_t address) {
        ibv_send_wr request{};
        request.opcode = opcode;
        request.sg_list = &entry;
        request.num_sge = 1;
        request.wr.rdma = {address, rkey};
        return run(requester_.get(), request);
    }
    /// Checks the completion status, and connects the queue pairs again.
    void expect_failure(ibv_wc_status got, ibv_wc_status expected = IBV_WC_REM_ACCESS_ERR) {
        EXPECT_EQ(got, expected) << ibv_wc_status_str(got);
        connect_again();
    }

    UniqueCq cq_;
    UniqueQp requester_;
    UniqueQp responder_;
    alignas(8) std::array<std::uint8_t, 64> local_{};
    UniqueMr local_mr_;
};

} // namespace softverbs_test
