// SPDX-License-Identifier: BSD-3-Clause
// Objects that one process creates and another process imports. Both processes are children of the
// test process, which itself calls no verbs.
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <stdexcept>

#include "two_processes.hpp"

namespace softverbs_test {
namespace {

constexpr std::size_t size = 8192;
constexpr std::uint64_t iova = 0x10000;
constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

/// What the importing process needs to know.
struct Handles {
    std::uint32_t pd, buffer, buffer_key, host, dm, dm_region, dm_key;
};

void send_descriptor(int socket, int descriptor) {
    char byte = 'd';
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) != 1) {
        throw std::runtime_error("the other process has ended");
    }
}

int receive_descriptor(int socket) {
    char byte = 0;
    iovec part{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&message) == nullptr) {
        throw std::runtime_error("no descriptor arrived");
    }
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
    return descriptor;
}

int make_memfd() {
    const int fd = ::memfd_create("imported", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    done(::ftruncate(fd, size), "ftruncate");
    return fd;
}

ibv_dm* allocate_device_memory(ibv_context* context) {
    ibv_alloc_dm_attr attributes{};
    attributes.length = 64;
    return made(ibv_alloc_dm(context, &attributes), "ibv_alloc_dm");
}

/// The process that creates the objects.
struct Creator : Conversation {
    explicit Creator(int socket) : Conversation(socket) {
        send_descriptor(socket, context->cmd_fd);
        tell(Handles{pd->handle, buffer->handle, buffer->lkey, host_region->handle, dm->handle,
                     dm_region->handle, dm_region->lkey});
    }
    void deregister() const {
        done(ibv_dereg_mr(host_region), "ibv_dereg_mr");
        done(ibv_dereg_mr(dm_region), "ibv_dereg_mr");
        done(ibv_free_dm(dm), "ibv_free_dm");
        done(ibv_dereg_mr(buffer), "ibv_dereg_mr");
    }

    ibv_context* context = open_first_device();
    ibv_pd* pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
    int memfd = make_memfd();
    std::byte* data = static_cast<std::byte*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
    ibv_mr* buffer = made(ibv_reg_dmabuf_mr(pd, 0, size, iova, memfd, access), "ibv_reg_dmabuf_mr");
    std::array<std::byte, 4096> host{};
    ibv_mr* host_region = made(ibv_reg_mr(pd, host.data(), host.size(), access), "ibv_reg_mr");
    ibv_dm* dm = allocate_device_memory(context);
    ibv_mr* dm_region =
        made(ibv_reg_dm_mr(pd, dm, 0, 64, access | IBV_ACCESS_ZERO_BASED), "ibv_reg_dm_mr");
};

/// The process that imports the objects. Its queue pair is connected to itself.
struct Importer : Conversation {
    explicit Importer(int socket) : Conversation(socket), device(receive_descriptor(socket)) {
        connect();
    }
    [[nodiscard]] ibv_qp* make_queue_pair() const {
        ibv_qp_init_attr init{};
        init.send_cq = init.recv_cq = cq;
        init.cap = {4, 4, 1, 1, 0};
        init.qp_type = IBV_QPT_RC;
        return made(ibv_create_qp(pd, &init), "ibv_create_qp");
    }
    void connect() const {
        ibv_port_attr port{};
        done(ibv_query_port(context, 1, &port), "ibv_query_port");
        connect_queue_pair(qp, {port.lid, qp->qp_num, 0, 0}, 0, 7);
    }
    /// Executes an RDMA write. Returns the status of its completion.
    [[nodiscard]] ibv_wc_status write(ibv_sge from, std::uint64_t to, std::uint32_t rkey) const {
        ibv_send_wr wr{};
        wr.sg_list = &from;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_RDMA_WRITE;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma = {to, rkey};
        ibv_send_wr* bad = nullptr;
        done(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
        ibv_wc wc{};
        if (!eventually([&] { return ibv_poll_cq(cq, 1, &wc) != 0; })) {
            throw std::runtime_error("no completion");
        }
        return wc.status;
    }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
        return reinterpret_cast<std::uint64_t>(memory.data() + offset);
    }
    void destroy_queue_pair() const {
        done(ibv_destroy_qp(qp), "ibv_destroy_qp");
        done(ibv_destroy_cq(cq), "ibv_destroy_cq");
        done(ibv_dereg_mr(own), "ibv_dereg_mr");
    }

    int device;
    Handles handles = hear<Handles>();
    ibv_context* context = made(ibv_import_device(device), "ibv_import_device");
    ibv_pd* pd = made(ibv_import_pd(context, handles.pd), "ibv_import_pd");
    ibv_cq* cq = made(ibv_create_cq(context, 16, nullptr, nullptr, 0), "ibv_create_cq");
    std::array<std::byte, 4096> memory{};
    ibv_mr* own = made(ibv_reg_mr(pd, memory.data(), memory.size(), access), "ibv_reg_mr");
    ibv_qp* qp = make_queue_pair();
};

using CreatorRole = std::function<void(Creator&)>;
using ImporterRole = std::function<void(Importer&)>;

class ImportFromAProcess : public testing::Test {
  protected:
    void start(const CreatorRole& create, const ImporterRole& import) {
        const auto in_directory = [this](const auto& body) {
            return [this, body](int socket) {
                ::setenv("SOFTVERBS_DIR", directory_.path().c_str(), 1);
                body(socket);
                return HasFailure() ? 1 : 0;
            };
        };
        children_ = fork_pair(2 * time_limit, in_directory([&create](int socket) {
                                  Creator creator(socket);
                                  create(creator);
                              }),
                              in_directory([&import](int socket) {
                                  Importer importer(socket);
                                  import(importer);
                              }));
    }
    void run(const CreatorRole& create, const ImporterRole& import) {
        start(create, import);
        expect_success(children_[0]);
        expect_success(children_[1]);
    }

    TemporaryDirectory directory_;
    std::array<pid_t, 2> children_{};
};

TEST_F(ImportFromAProcess, RegionsAndDeviceMemoryAreTheSameMemoryWithTheSameKeys) {
    run(
        [](Creator& creator) {
            std::memset(creator.data, 0x5a, size);
            creator.tell('s');
            static_cast<void>(creator.hear<char>());
            EXPECT_EQ(creator.data[4096], std::byte{0x21});
            EXPECT_EQ(creator.data[4195], std::byte{0x21});
            EXPECT_EQ(creator.data[4196], std::byte{0x5a});
            std::array<std::byte, 64> bytes{};
            EXPECT_EQ(ibv_memcpy_from_dm(bytes.data(), creator.dm, 0, 64), 0);
            EXPECT_EQ(bytes[7], std::byte{0x21});
            EXPECT_EQ(bytes[8], std::byte{0});
            std::uint64_t read = 0;
            EXPECT_EQ(ibv_memcpy_from_dm(&read, creator.dm, 16, sizeof read), 0);
            EXPECT_EQ(read, 0x1122334455667788U);
        },
        [](Importer& importer) {
            const Handles& handles = importer.handles;
            ibv_mr* const buffer =
                made(ibv_import_mr(importer.pd, handles.buffer), "ibv_import_mr");
            ibv_mr* const dm = made(ibv_import_mr(importer.pd, handles.dm_region), "ibv_import_mr");
            EXPECT_EQ(buffer->lkey, handles.buffer_key);
            EXPECT_NE(buffer->rkey, handles.buffer_key);
            EXPECT_EQ(buffer->length, size);
            EXPECT_EQ(dm->lkey, handles.dm_key);
            static_cast<void>(importer.hear<char>());
            // From the imported region, by its lkey.
            EXPECT_EQ(
                importer.write({iova, 100, buffer->lkey}, importer.address(), importer.own->rkey),
                IBV_WC_SUCCESS);
            EXPECT_EQ(importer.memory[99], std::byte{0x5a});
            EXPECT_EQ(importer.memory[100], std::byte{0});
            // To the imported regions, by their rkeys.
            importer.memory.fill(std::byte{0x21});
            const ibv_sge from{importer.address(), 100, importer.own->lkey};
            EXPECT_EQ(importer.write(from, iova + 4096, buffer->rkey), IBV_WC_SUCCESS);
            EXPECT_EQ(importer.write({from.addr, 8, from.lkey}, 0, dm->rkey), IBV_WC_SUCCESS);
            ibv_dm* const memory = made(ibv_import_dm(importer.context, handles.dm), "dm");
            const std::uint64_t written = 0x1122334455667788;
            EXPECT_EQ(ibv_memcpy_to_dm(memory, 16, &written, sizeof written), 0);
            EXPECT_EQ(ibv_memcpy_to_dm(memory, 64, &written, sizeof written), EFAULT);
            ibv_unimport_dm(memory);
            importer.tell('s');
            ibv_unimport_mr(dm);
            ibv_unimport_mr(buffer);
            importer.destroy_queue_pair();
            ibv_unimport_pd(importer.pd);
            EXPECT_EQ(ibv_close_device(importer.context), 0);
            EXPECT_EQ(softverbs_live(SOFTVERBS_KINDS), 0U);
        });
}

TEST_F(ImportFromAProcess, HandlesOfOtherObjectsAndPrivateMemoryAreRefused) {
    run([](Creator& creator) { static_cast<void>(creator.hear<char>()); },
        [](Importer& importer) {
            const Handles& handles = importer.handles;
            const auto errno_of = [](const auto* object) { return object == nullptr ? errno : 0; };
            EXPECT_EQ(errno_of(ibv_import_pd(importer.context, 0xabcdef)), ENOENT);
            EXPECT_EQ(errno_of(ibv_import_mr(importer.pd, 0xabcdef)), ENOENT);
            EXPECT_EQ(errno_of(ibv_import_dm(importer.context, 0xabcdef)), ENOENT);
            // The memory of ibv_reg_mr() is private to its process.
            EXPECT_EQ(errno_of(ibv_import_mr(importer.pd, handles.host)), EOPNOTSUPP);
            // Only the other process can destroy its objects.
            ibv_mr* const buffer =
                made(ibv_import_mr(importer.pd, handles.buffer), "ibv_import_mr");
            EXPECT_EQ(ibv_dereg_mr(buffer), EOPNOTSUPP);
            ibv_unimport_mr(buffer);
            importer.destroy_queue_pair();
            EXPECT_EQ(ibv_dealloc_pd(importer.pd), EOPNOTSUPP);
            importer.tell('s');
        });
}

TEST_F(ImportFromAProcess, KeysOfADeregisteredRegionAreInvalidInBothProcesses) {
    run(
        [](Creator& creator) {
            static_cast<void>(creator.hear<char>());
            creator.deregister();
            creator.tell('s');
            static_cast<void>(creator.hear<char>());
        },
        [](Importer& importer) {
            const std::uint32_t handle = importer.handles.buffer;
            const ibv_mr* const buffer = made(ibv_import_mr(importer.pd, handle), "ibv_import_mr");
            const std::uint64_t to = importer.address();
            EXPECT_EQ(importer.write({iova, 8, buffer->lkey}, to, importer.own->rkey),
                      IBV_WC_SUCCESS);
            importer.tell('s');
            static_cast<void>(importer.hear<char>());
            EXPECT_EQ(importer.write({iova, 8, buffer->lkey}, to, importer.own->rkey),
                      IBV_WC_LOC_PROT_ERR);
            EXPECT_EQ(ibv_import_mr(importer.pd, handle), nullptr);
            EXPECT_EQ(errno, ENOENT);
            importer.tell('s');
        });
}

TEST_F(ImportFromAProcess, DomainIsBusyWhileAnotherProcessUsesIt) {
    run(
        [](Creator& creator) {
            static_cast<void>(creator.hear<char>());
            creator.deregister();
            EXPECT_EQ(ibv_dealloc_pd(creator.pd), EBUSY);
            creator.tell('s');
            static_cast<void>(creator.hear<char>());
            EXPECT_EQ(ibv_dealloc_pd(creator.pd), 0);
            creator.tell('s');
        },
        [](Importer& importer) {
            importer.tell('s');
            static_cast<void>(importer.hear<char>());
            importer.destroy_queue_pair();
            importer.tell('s');
            static_cast<void>(importer.hear<char>());
            EXPECT_EQ(ibv_import_pd(importer.context, importer.handles.pd), nullptr);
            EXPECT_EQ(errno, ENOENT);
        });
}

TEST_F(ImportFromAProcess, DomainIsNotBusyAfterTheImportingProcessWasKilled) {
    start(
        [](Creator& creator) {
            const auto importer = creator.hear<pid_t>();
            creator.deregister();
            EXPECT_EQ(ibv_dealloc_pd(creator.pd), EBUSY);
            EXPECT_EQ(::kill(importer, SIGKILL), 0);
            EXPECT_TRUE(eventually([&] { return ibv_dealloc_pd(creator.pd) == 0; }));
        },
        [](Importer& importer) {
            importer.tell(::getpid());
            ::pause();
        });
    int status = 0;
    ASSERT_EQ(::waitpid(children_[1], &status, 0), children_[1]);
    EXPECT_TRUE(WIFSIGNALED(status));
    expect_success(children_[0]);
}

} // namespace
} // namespace softverbs_test
