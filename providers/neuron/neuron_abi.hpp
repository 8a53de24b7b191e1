// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// Declares the part of the Neuron runtime's interface that rdmabuf uses, so that the build needs
/// no Neuron SDK. The values are those of <nrt/nrt.h>, <nrt/nrt_status.h> and <nrt/nrt_version.h>.
/// Where these headers are installed, tests/build/abi/neuron.cpp checks that the values agree.
namespace rdmabuf::detail::neuron {

using NrtStatus = int; // NRT_STATUS
inline constexpr NrtStatus success = 0;
inline constexpr NrtStatus failure = 1;
inline constexpr NrtStatus invalid = 2;
inline constexpr NrtStatus invalid_handle = 3;
inline constexpr NrtStatus resource = 4;
inline constexpr NrtStatus timeout = 5;
inline constexpr NrtStatus hardware_error = 6;
inline constexpr NrtStatus queue_full = 7;
inline constexpr NrtStatus load_not_enough_cores = 9;
inline constexpr NrtStatus host_memory_allocation = 11;
inline constexpr NrtStatus uninitialized = 13;
inline constexpr NrtStatus closed = 14;

/// nrt_framework_type_t
inline constexpr int no_framework = 1;
/// nrt_tensor_placement_t
enum class Placement : int { device = 0, host = 1 };

using Tensor = struct OpaqueTensor; // nrt_tensor_t

/// nrt_version_t
struct Version {
    std::uint64_t major = 0;
    std::uint64_t minor = 0;
    std::uint64_t patch = 0;
    std::uint64_t maintenance = 0;
    std::array<char, 128> detail = {};
    std::array<char, 64> git_hash = {};
};

using Init = NrtStatus(int framework, const char* framework_version, const char* layer_version);
using GetVersion = NrtStatus(Version*, std::size_t);
using GetTotalCoreCount = NrtStatus(std::uint32_t*);
using TensorAllocate = NrtStatus(Placement, int core, std::size_t, const char* name, Tensor**);
using TensorFree = void(Tensor**);
using TensorGetAddress = void*(const Tensor*);
using TensorRead = NrtStatus(const Tensor*, void*, std::size_t offset, std::size_t);
using TensorWrite = NrtStatus(Tensor*, const void*, std::size_t offset, std::size_t);
using GetDmabufFd = NrtStatus(std::uint64_t address, std::uint64_t size, int* fd);
/// The public header does not declare nrt_get_dmabuf_fd_v2. libfabric (src/hmem_neuron.c)
/// uses this function type.
using GetDmabufFdV2 = NrtStatus(std::uint64_t address, std::uint64_t size, int* fd,
                                std::uint64_t* offset);

} // namespace rdmabuf::detail::neuron
