// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>

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
    void TearDown() override {
        EXPECT_EQ(open_descriptors(), descriptors_);
        softverbs_clear_faults();
        VerbsTest::TearDown();
    }

    /// Reopens the device with another profile.
    void use_profile(const char* profile) {
        pd.reset();
        context.reset();
        ASSERT_EQ(softverbs_reset(profile, 1), 0);
        ibv_device** const list = ibv_get_device_list(nullptr);
        ASSERT_NE(list, nullptr);
        context.reset(ibv_open_device(list[0]));
        ibv_free_device_list(list);
        ASSERT_NE(context, nullptr);
        pd.reset(ibv_alloc_pd(context.get()));
        ASSERT_NE(pd, nullptr);
    }
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

/// A test with two connected queue pairs of this process. The derived class creates and destroys
/// them.
class ConnectedPairTest : public VerbsTest {
  protected:
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

    UniqueQp requester_;
    UniqueQp responder_;
};

} // namespace softverbs_test
