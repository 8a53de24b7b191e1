// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "objects/device.hpp"
#include "objects/mapping.hpp"
#include "objects/memory.hpp"
#include "objects/object_table.hpp"

namespace softverbs {

/// A memory region of another process. Its Mr is not visible to the program.
struct ForeignRegion {
    ForeignRegion() = default;
    ForeignRegion(const ForeignRegion&) = delete;
    ForeignRegion& operator=(const ForeignRegion&) = delete;
    /// Removes the key of the region, and unmaps its memory. Releases Process::lock temporarily.
    ~ForeignRegion();

    Mr region;
    unsigned imports = 0;
};

/// The file to which ibv_context::cmd_fd refers. All contexts whose cmd_fd refers to the same file
/// share this object, and can import each other's verbs objects.
struct DeviceFile {
    Device* device = nullptr;
    FileIdentity identity;
    /// Whether another process has opened the file and has passed its descriptor to this process.
    /// `table` then contains the verbs objects of that process.
    bool of_other_process = false;
    ObjectTable table;
    std::vector<Pd*> pds;
    std::vector<std::unique_ptr<Pd>> imported_pds;
    /// The protection domains and the memory regions of another process, as this process sees them.
    /// The objects that ibv_import_pd() and ibv_import_mr() return refer to these objects.
    std::vector<std::unique_ptr<Pd>> foreign_pds;
    std::vector<std::unique_ptr<ForeignRegion>> foreign_regions;
};

} // namespace softverbs
