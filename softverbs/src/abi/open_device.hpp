// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "objects/device_file.hpp"
#include "objects/memory.hpp"

namespace softverbs {

/// Creates a context for the device file. On success, the context owns @p cmd_fd. On failure,
/// returns null and sets errno, and the caller still owns @p cmd_fd.
[[nodiscard]] Context* open_device(std::shared_ptr<DeviceFile> file, int cmd_fd);

/// Frees an imported protection domain, but not the original one.
void unimport_pd(Pd& pd);
/// Frees an imported memory region, but not the original one.
void unimport_mr(Mr& mr);
/// Implements ibv_dereg_mr() for a region that ibv_import_mr() has returned. Also makes the
/// original region unusable. Returns 0, or EOPNOTSUPP if another process has registered the
/// original region.
int dereg_imported_mr(Mr& mr);

} // namespace softverbs
