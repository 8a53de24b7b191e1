// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include "objects/device_file.hpp"
#include "objects/memory.hpp"

namespace softverbs {

/// Creates a context. It takes over @p cmd_fd when it succeeds; null and errno otherwise.
[[nodiscard]] Context* open_device(std::shared_ptr<DeviceFile> file, int cmd_fd);

/// Frees the handles of ibv_import_pd() and ibv_import_mr(); the originals stay.
void unimport_pd(Pd& pd);
void unimport_mr(Mr& mr);
/// ibv_dereg_mr() of an imported region: ends the access to the original as well. 0.
int dereg_imported_mr(Mr& mr);

} // namespace softverbs
