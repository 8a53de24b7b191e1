// SPDX-License-Identifier: BSD-3-Clause
#include "device/driver_name.hpp"

#include <system_error>

namespace rdmabuf::detail {

std::string driver_name(const std::string& device, const std::filesystem::path& sys) {
    const std::filesystem::path about = sys / "class/infiniband" / device;
    std::error_code none;
    // Of all drivers rxe alone has this attribute (drivers/infiniband/sw/rxe/rxe_verbs.c). Asked
    // for first: older kernels hang it on the network card, whose driver it is not.
    if (std::filesystem::exists(about / "parent", none)) {
        return "rxe";
    }
    return std::filesystem::read_symlink(about / "device/driver", none).filename().string();
}

} // namespace rdmabuf::detail
