// SPDX-License-Identifier: BSD-3-Clause
// A CUDA program that includes the transport: nvcc compiles it for the host and for the GPU.
#include <rdmabuf/transport.hpp>

__global__ void fill(float* values) {
    values[threadIdx.x] = 1;
}

std::error_code send(rdmabuf::transport::Channel& channel, const rdmabuf::transport::Memory& memory,
                     float* values, rdmabuf::transport::Request& request) {
    fill<<<1, 32>>>(values);
    return channel.isend(memory, values, 32 * sizeof(float), 1, request);
}
