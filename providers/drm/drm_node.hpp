// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <rdmabuf/providers/drm.hpp>
#include <rdmabuf/result.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// An open primary node that makes dumb buffers and exports them.
struct DrmNode {
    UniqueFd fd;
    std::string path;
    std::string driver;
    /// Empty for a device that is not on a PCI bus, such as vgem's.
    std::string pci_address;
};

/// The node that @p options choose or, when none is fit, what is the matter with each.
[[nodiscard]] Result<DrmNode> open_drm_node(const DrmOptions& options);

} // namespace rdmabuf::detail
