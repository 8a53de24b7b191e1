// SPDX-License-Identifier: BSD-3-Clause
// The linker directs calls of dlvsym(3) here, by its option --wrap.
#include "verbs_buf_calls.hpp"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace rdmabuf::testing {

constinit FakeVerbsBuf fake_verbs_buf;

} // namespace rdmabuf::testing

using rdmabuf::testing::fake_verbs_buf;

// NOLINTNEXTLINE(readability-identifier-naming): the name of libibverbs
struct ibv_buf {
    int fd;
    void* address;
    std::size_t size;
};

extern "C" {
static void* alloc_buf(ibv_pd* /*pd*/, std::size_t size, ibv_buf** buffer) {
    if (fake_verbs_buf.alloc_fails || fake_verbs_buf.alloc_error != 0) {
        errno = fake_verbs_buf.alloc_error != 0 ? fake_verbs_buf.alloc_error : errno;
        return nullptr;
    }
    const int fd = ::memfd_create("fake ibv_buf", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(size)) != 0) {
        return nullptr;
    }
    void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *buffer = new ibv_buf{fd, address, size};
    ++fake_verbs_buf.live;
    return address;
}

static void free_buf(ibv_buf* buffer) {
    ::munmap(buffer->address, buffer->size);
    ::close(buffer->fd);
    delete buffer;
    --fake_verbs_buf.live;
}

static int export_buf(ibv_buf* buffer) {
    if (fake_verbs_buf.export_error != 0) {
        errno = fake_verbs_buf.export_error;
        return -1;
    }
    if (fake_verbs_buf.exported_size != 0) {
        const int fd = ::memfd_create("of another size", MFD_CLOEXEC);
        return ::ftruncate(fd, static_cast<off_t>(fake_verbs_buf.exported_size)) == 0 ? fd : -1;
    }
    return ::fcntl(buffer->fd, F_DUPFD_CLOEXEC, 0);
}

void* __real_dlvsym(void* handle, const char* name, const char* version);
void* __wrap_dlvsym(void* handle, const char* name, const char* version) {
    const auto is = [=](const char* wanted, const char* of_version) {
        return std::strcmp(name, wanted) == 0 && std::strcmp(version, of_version) == 0;
    };
    if (is("ibv_alloc_buf", "IBVERBS_1.17")) {
        return reinterpret_cast<void*>(&alloc_buf);
    }
    if (is("ibv_free_buf", "IBVERBS_1.17")) {
        return reinterpret_cast<void*>(&free_buf);
    }
    if (is("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18")) {
        return fake_verbs_buf.exists ? reinterpret_cast<void*>(&export_buf) : nullptr;
    }
    return __real_dlvsym(handle, name, version);
}
}
