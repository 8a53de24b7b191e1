// SPDX-License-Identifier: BSD-3-Clause
// Functions that loaders have since 1.10.
#include <level_zero/ze_api.h>

#include <cstdint>

#include "fake_level_zero.hpp"

extern "C" ze_result_t zeMemPutIpcHandle(ze_context_handle_t /*context*/,
                                         ze_ipc_mem_handle_t handle) {
    return static_cast<ze_result_t>(fake_level_zero::put_ipc_handle(handle.data));
}

extern "C" ze_result_t zeMemGetFileDescriptorFromIpcHandleExp(ze_context_handle_t /*context*/,
                                                              ze_ipc_mem_handle_t handle,
                                                              std::uint64_t* fd) {
    return static_cast<ze_result_t>(fake_level_zero::descriptor_of_ipc_handle(handle.data, fd));
}
