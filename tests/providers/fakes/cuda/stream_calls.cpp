// SPDX-License-Identifier: BSD-3-Clause
// The functions of libcuda.so.1 that softverbs calls, besides those that rdmabuf does.
#include <cstring>
#include <memory>
#include <vector>

#include "call.hpp"
#include "softverbs/src/objects/cuda_abi.hpp"

namespace abi = softverbs::cuda;
using abi::Result;
using abi::Stream;
using fake_cuda::Call;
using fake_cuda::contexts;

struct softverbs::cuda::OpaqueStream {
    rdmabuf::detail::cuda::Context context;
};

extern "C" {
extern abi::StreamCreate cuStreamCreate;
extern abi::StreamQuery cuStreamQuery;
extern abi::StreamSynchronize cuStreamSynchronize;
extern abi::MemcpyHtoDAsync cuMemcpyHtoDAsync_v2;
extern abi::MemcpyDtoHAsync cuMemcpyDtoHAsync_v2;
}

namespace {

/// A stream is its context's, which has to be current and alive.
Result check(const Call& call, Stream stream) {
    if (call.refused() != abi::success) {
        return call.refused();
    }
    const bool usable = stream != nullptr && !contexts().empty() &&
                        contexts().back() == stream->context && stream->context->alive;
    return usable ? abi::success : fake_cuda::abi::invalid_context;
}

} // namespace

Result cuStreamCreate(Stream* stream, unsigned flags) {
    const Call call("cuStreamCreate");
    if (call.refused() != abi::success) {
        return call.refused();
    }
    // One that waits for the program's kernels would be a device that they can stop.
    if (flags != abi::stream_non_blocking || contexts().empty()) {
        return fake_cuda::abi::invalid_value;
    }
    static std::vector<std::unique_ptr<abi::OpaqueStream>> streams;
    streams.push_back(std::make_unique<abi::OpaqueStream>());
    streams.back()->context = contexts().back();
    *stream = streams.back().get();
    return abi::success;
}

Result cuStreamQuery(Stream stream) {
    return check(Call("cuStreamQuery"), stream);
}

Result cuStreamSynchronize(Stream stream) {
    return check(Call("cuStreamSynchronize"), stream);
}

Result cuMemcpyHtoDAsync_v2(abi::DevicePointer to, const void* from, std::size_t size,
                            Stream stream) {
    const Call call("cuMemcpyHtoDAsync_v2");
    Result allowed = check(call, stream);
    allowed = allowed == abi::success ? check_copy(call, to, size) : allowed;
    if (allowed == abi::success) {
        std::memcpy(call->memory.bytes(to), from, size);
    }
    return allowed;
}

Result cuMemcpyDtoHAsync_v2(void* to, abi::DevicePointer from, std::size_t size, Stream stream) {
    const Call call("cuMemcpyDtoHAsync_v2");
    Result allowed = check(call, stream);
    allowed = allowed == abi::success ? check_copy(call, from, size) : allowed;
    if (allowed == abi::success) {
        std::memcpy(to, call->memory.bytes(from), size);
    }
    return allowed;
}
