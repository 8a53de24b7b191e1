// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <rdmabuf/error.hpp>
#include <rdmabuf/providers/drm.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Holds an open DRM primary node that can create and export dumb buffers.
struct DrmNode {
    UniqueFd fd;
    std::string path;
    std::string driver;
    /// PCI address, "0000:3b:00.0". Empty for a device that is not on a PCI bus, such as vgem.
    std::string pci_address;
};

/// Opens the node that @p options select. If no node is suitable, the error has a reason for each
/// node.
[[nodiscard]] Result<DrmNode> open_drm_node(const DrmOptions& options);

} // namespace rdmabuf::detail
