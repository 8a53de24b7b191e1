// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <string>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

struct DrmOptions {
    /// A primary node, "/dev/dri/card0" (render nodes cannot make dumb buffers); empty to choose.
    std::string path = {};
    /// The DRM driver to choose, "vgem"; empty for the first node that can make dumb buffers.
    std::string driver = {};
};

/// "drm": dumb buffers of a DRM primary node, exported through PRIME and mapped for the CPU.
/// Needs permission to open the node (group video). drm-memory(7);
/// drivers/gpu/drm/drm_dumb_buffers.c.
[[nodiscard]] RDMABUF_EXPORT std::shared_ptr<Allocator> make_drm_exporter(
    const DrmOptions& options = {});

} // namespace rdmabuf
