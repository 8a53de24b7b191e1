// SPDX-License-Identifier: BSD-3-Clause
// The functions of a plugin of NIXL; see backend_engine.h.
#pragma once

#include <backend/backend_engine.h>
#include <common/nixl_log.h>

#define NIXL_PLUGIN_API_VERSION 1
#define NIXL_PLUGIN_EXPORT __attribute__((visibility("default")))

class nixlBackendPlugin {
  public:
    int api_version;
    nixlBackendEngine* (*create_engine)(const nixlBackendInitParams*);
    void (*destroy_engine)(nixlBackendEngine*);
    const char* (*get_plugin_name)();
    const char* (*get_plugin_version)();
    nixl_b_params_t (*get_backend_options)();
    nixl_mem_list_t (*get_backend_mems)();
};

extern "C" {
NIXL_PLUGIN_EXPORT nixlBackendPlugin* nixl_plugin_init();
NIXL_PLUGIN_EXPORT void nixl_plugin_fini();
}
