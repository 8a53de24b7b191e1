// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "objects/device_file.hpp"
#include "objects/memory.hpp"

namespace softverbs {

/// Creates a context and takes ownership of @p cmd_fd. Returns null and sets errno on failure; the
/// caller then keeps @p cmd_fd.
[[nodiscard]] Context* open_device(std::shared_ptr<DeviceFile> file, int cmd_fd);

/// Frees an imported protection domain or region; the original is not freed.
void unimport_pd(Pd& pd);
void unimport_mr(Mr& mr);
/// Implements ibv_dereg_mr() for an imported region, which ends the access to the original as well.
/// Returns 0.
int dereg_imported_mr(Mr& mr);

} // namespace softverbs
