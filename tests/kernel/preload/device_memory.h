// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <infiniband/verbs.h>
#include <stdbool.h>

// Gives a context the device-memory operations if the rig's module serves its device.
void rig_add_device_memory(struct ibv_context* context);

// Whether rig_add_device_memory did so.
bool rig_serves(struct ibv_context* context);
