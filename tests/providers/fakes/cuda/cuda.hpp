// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "functions.hpp"
#include "machine.hpp"

struct rdmabuf::detail::cuda::OpaqueContext : fake_driver::Context {};

// A definition with another type than the type by which rdmabuf calls the function does not
// compile.
#define DECLARE_FUNCTION(scope, type, name) extern "C" scope::type name;
CUDA_FUNCTIONS(DECLARE_FUNCTION)

namespace fake_cuda {

namespace abi = rdmabuf::detail::cuda;
using abi::Result;
using fake_driver::Allocation;
using fake_driver::Context;
using fake_driver::Kind;
using fake_driver::Machine;
using fake_driver::Needs;
using fake_driver::Setting;

/// Returns the stack of current contexts of the calling thread.
std::vector<Context*>& contexts();

template <class Body>
Result call(const char* function, Body&& body) {
    return fake_driver::call<Result>(function, Needs::initialised, body);
}

/// The capture mode of the calling thread, 0 (global) or 2 (relaxed).
int& capture_mode();

/// Allocates memory in the current context.
Result allocate(Machine& machine, Kind kind, std::size_t size, abi::DevicePointer* address);
/// Returns whether the current context may access an allocation: the context of the allocation, or
/// any context of the device for memory without a context.
bool reaches(const Allocation& allocation);
/// Returns whether the current context may copy bytes from or to an address.
Result check_copy(Machine& machine, abi::DevicePointer address, std::size_t size);

} // namespace fake_cuda
