// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct DrmOptions {
    /// Path of a DRM primary node, such as "/dev/dri/card0". Render nodes cannot create dumb
    /// buffers. If the path is empty, the exporter uses the first primary node that has the
    /// required driver, and can create and export dumb buffers.
    std::string path = {};
    /// Name of the DRM driver that the node must have, such as "vgem". If the name is empty, every
    /// driver is accepted.
    std::string driver = {};
};

/// Returns the exporter "drm", which allocates dumb buffers from a DRM primary node, exports them
/// through PRIME and maps them for the CPU. The process needs permission to open the node (group
/// video). See drm-memory(7) and drivers/gpu/drm/drm_dumb_buffers.c.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_drm_exporter(
    const DrmOptions& options = {});

} // namespace rdmabuf
