// SPDX-License-Identifier: BSD-3-Clause
#include "installation.hpp"

#include <dlfcn.h>
#include <link.h>
#include <softverbs/softverbs.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

namespace softverbs::tools {

namespace {

std::filesystem::path file_of(const void* address) {
    Dl_info info{};
    return address != nullptr && ::dladdr(address, &info) != 0 ? info.dli_fname : "";
}

/// Returns the path of the sanitizer runtime that this process uses, or an empty path. If
/// libsoftverbs was built with a sanitizer, the runtime must be preloaded before it.
std::filesystem::path loaded_sanitizer() {
    std::filesystem::path found;
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* out) {
            const std::filesystem::path path = info->dlpi_name;
            const std::string name = path.filename();
            for (const std::string_view runtime : {"libasan.so", "libtsan.so", "libubsan.so"}) {
                if (name.starts_with(runtime)) {
                    *static_cast<std::filesystem::path*>(out) = path;
                    return 1;
                }
            }
            return 0;
        },
        &found);
    return found;
}

} // namespace

Installation find_installation() {
    Installation found;
    found.library =
        std::filesystem::canonical(file_of(reinterpret_cast<const void*>(&softverbs_live)));
    const std::filesystem::path beside = found.library.parent_path();
    for (const char* const directory : {"front", "softverbs"}) {
        if (std::filesystem::exists(beside / directory / "libibverbs.so.1")) {
            found.front = beside / directory;
            break;
        }
    }
    if (found.front.empty()) {
        throw std::runtime_error("there is no libibverbs.so.1 in " +
                                 (beside / "softverbs").string() +
                                 ": the installation of softverbs is not complete");
    }
    // Find the real libibverbs, which programs use if they run without softverbs. This process is
    // linked with libibverbs, so the loader has already loaded it, even if only LD_LIBRARY_PATH
    // contains its directory.
    const std::filesystem::path real = file_of(::dlsym(RTLD_DEFAULT, "ibv_get_sysfs_path"));
    if (real.empty()) {
        throw std::runtime_error("cannot find the real libibverbs.so.1: install rdma-core");
    }
    found.real_library = std::filesystem::canonical(real);
    found.sanitizer = loaded_sanitizer();
    return found;
}

} // namespace softverbs::tools
