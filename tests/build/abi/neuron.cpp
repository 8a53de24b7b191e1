// SPDX-License-Identifier: BSD-3-Clause
// Compiles where our declarations of the Neuron runtime's interface agree with those of AWS. There
// is nothing to run.
#include <nrt/nrt.h>
#include <nrt/nrt_status.h>
#include <nrt/nrt_version.h>

#include <cstddef>

#include "same_abi.hpp"
#include "tests/providers/fakes/neuron/functions.hpp"

namespace abi = rdmabuf::detail::neuron;

using same_abi::same;

static_assert(same(abi::success, NRT_SUCCESS));
static_assert(same(abi::failure, NRT_FAILURE));
static_assert(same(abi::invalid, NRT_INVALID));
static_assert(same(abi::invalid_handle, NRT_INVALID_HANDLE));
static_assert(same(abi::resource, NRT_RESOURCE));
static_assert(same(abi::timeout, NRT_TIMEOUT));
static_assert(same(abi::hardware_error, NRT_HW_ERROR));
static_assert(same(abi::queue_full, NRT_QUEUE_FULL));
static_assert(same(abi::load_not_enough_cores, NRT_LOAD_NOT_ENOUGH_NC));
static_assert(same(abi::host_memory_allocation, NRT_FAIL_HOST_MEM_ALLOC));
static_assert(same(abi::uninitialized, NRT_UNINITIALIZED));
static_assert(same(abi::closed, NRT_CLOSED));
static_assert(same(abi::no_framework, NRT_FRAMEWORK_TYPE_NO_FW));
static_assert(same(abi::Placement::device, NRT_TENSOR_PLACEMENT_DEVICE));
static_assert(same(abi::Placement::host, NRT_TENSOR_PLACEMENT_HOST));

static_assert(sizeof(abi::Version) == sizeof(nrt_version_t));
static_assert(offsetof(abi::Version, major) == offsetof(nrt_version_t, rt_major));
static_assert(offsetof(abi::Version, maintenance) == offsetof(nrt_version_t, rt_maintenance));
static_assert(offsetof(abi::Version, detail) == offsetof(nrt_version_t, rt_detail));
static_assert(offsetof(abi::Version, git_hash) == offsetof(nrt_version_t, git_hash));

NEURON_FUNCTIONS(SAME_DECLARATION)
