// SPDX-License-Identifier: BSD-3-Clause
#include "common/exported_memory.hpp"

#include <fcntl.h>

#include <cerrno>

#include <rdmabuf/error.hpp>

#include "common/dmabuf_size.hpp"

namespace rdmabuf::detail {

UniqueFd take_descriptor(int raw, const char* call) {
    UniqueFd fd(raw);
    if (!fd) {
        throw Error(EIO, call, "the driver says that it succeeded, and gave no descriptor");
    }
    if (::fcntl(fd.get(), F_SETFD, FD_CLOEXEC) != 0) {
        throw Error(errno, "fcntl(F_SETFD)");
    }
    return fd;
}

void check_holds(const ExportedMemory& exported, std::size_t length, const char* call,
                 const std::string& described) {
    const auto size = dmabuf_size(exported.fd.get());
    if (size && (exported.offset > *size || length > *size - exported.offset)) {
        throw Error(ERANGE, call,
                    "the driver's dma-buf has " + std::to_string(*size) +
                        " bytes, which does not do for the " + described + ", from offset " +
                        std::to_string(exported.offset) + " on");
    }
}

} // namespace rdmabuf::detail
