// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "providers/neuron/neuron_abi.hpp"

// The functions of the fake libnrt.so.1. tests/build/abi compares their types with <nrt/nrt.h>.

/// Calls FUNCTION(namespace, type, exported name) for each function.
#define NEURON_FUNCTIONS(FUNCTION)                                               \
    FUNCTION(rdmabuf::detail::neuron, Init, nrt_init)                            \
    FUNCTION(rdmabuf::detail::neuron, GetVersion, nrt_get_version)               \
    FUNCTION(rdmabuf::detail::neuron, GetTotalCoreCount, nrt_get_total_nc_count) \
    FUNCTION(rdmabuf::detail::neuron, TensorAllocate, nrt_tensor_allocate)       \
    FUNCTION(rdmabuf::detail::neuron, TensorFree, nrt_tensor_free)               \
    FUNCTION(rdmabuf::detail::neuron, TensorGetAddress, nrt_tensor_get_va)       \
    FUNCTION(rdmabuf::detail::neuron, TensorRead, nrt_tensor_read)               \
    FUNCTION(rdmabuf::detail::neuron, TensorWrite, nrt_tensor_write)             \
    FUNCTION(rdmabuf::detail::neuron, GetDmabufFd, nrt_get_dmabuf_fd)
/// Functions that the public header does not declare.
#define NEURON_PRIVATE_FUNCTIONS(FUNCTION) \
    FUNCTION(rdmabuf::detail::neuron, GetDmabufFdV2, nrt_get_dmabuf_fd_v2)
