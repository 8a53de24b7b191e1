// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "runtime.hpp"

namespace abi = fake_neuron::abi;

extern "C" {
extern abi::GetDmabufFdV2 nrt_get_dmabuf_fd_v2;
}

abi::Status nrt_get_dmabuf_fd_v2(std::uint64_t address, std::uint64_t size, int* fd,
                                 std::uint64_t* offset) {
    const fake_neuron::Call call("nrt_get_dmabuf_fd_v2");
    if (const abi::Status refused = call.refused_unless_initialised(); refused != abi::success) {
        return refused;
    }
    const abi::Tensor* const tensor = call->holder(address);
    if (tensor == nullptr || size == 0 || size > tensor->size - (address - tensor->address)) {
        return abi::invalid;
    }
    *offset =
        address % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + call->faults.offset_error;
    return call->share(address, size, fd);
}
