// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// Declares the part of the Neuron runtime's interface that rdmabuf uses, so that the build needs
/// no Neuron SDK. The values are those of <nrt/nrt.h>, <nrt/nrt_status.h> and <nrt/nrt_version.h>.
/// Where these headers are installed, tests/build/abi/neuron.cpp checks that the values agree.
namespace rdmabuf::detail::neuron {

using Status = int; // NRT_STATUS
inline constexpr Status success = 0;
inline constexpr Status failure = 1;
inline constexpr Status invalid = 2;
inline constexpr Status invalid_handle = 3;
inline constexpr Status resource = 4;
inline constexpr Status timeout = 5;
inline constexpr Status hardware_error = 6;
inline constexpr Status queue_full = 7;
inline constexpr Status load_not_enough_cores = 9;
inline constexpr Status host_memory_allocation = 11;
inline constexpr Status uninitialized = 13;
inline constexpr Status closed = 14;

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

using Init = Status(int framework, const char* framework_version, const char* layer_version);
using GetVersion = Status(Version*, std::size_t);
using GetTotalCoreCount = Status(std::uint32_t*);
using TensorAllocate = Status(Placement, int core, std::size_t, const char* name, Tensor**);
using TensorFree = void(Tensor**);
using TensorGetAddress = void*(const Tensor*);
using TensorRead = Status(const Tensor*, void*, std::size_t offset, std::size_t);
using TensorWrite = Status(Tensor*, const void*, std::size_t offset, std::size_t);
using GetDmabufFd = Status(std::uint64_t address, std::uint64_t size, int* fd);
/// The public header does not declare nrt_get_dmabuf_fd_v2. libfabric (src/hmem_neuron.c)
/// uses this function type.
using GetDmabufFdV2 = Status(std::uint64_t address, std::uint64_t size, int* fd,
                             std::uint64_t* offset);

} // namespace rdmabuf::detail::neuron
