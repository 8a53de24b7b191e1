// SPDX-License-Identifier: BSD-3-Clause
#include "environment.hpp"

#include <dlfcn.h>
#include <link.h>
#include <softverbs/softverbs.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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

namespace {

std::string variable(const char* name) {
    const char* const value = ::getenv(name);
    return value != nullptr ? value : "";
}

/// Returns whether @p list contains @p entry. Each character of @p separators separates entries.
bool has_entry(std::string_view list, std::string_view separators, std::string_view entry) {
    while (!list.empty()) {
        const std::size_t end = list.find_first_of(separators);
        if (list.substr(0, end) == entry) {
            return true;
        }
        list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    }
    return false;
}

std::string joined(const std::string& first, const std::string& second) {
    return first.empty() || second.empty() ? first + second : first + ":" + second;
}

/// A symbolic link to a real library, such as libibverbs. The front library is the library of
/// softverbs that has the same name as the real one, and that programs load in its place. It loads
/// the real library through this link.
struct Link {
    std::string name;
    std::filesystem::path target;
};

/// Returns the links that the front libraries need, one for each real library that is installed on
/// this machine. Without its link, a front library cannot be loaded.
std::vector<Link> links_of(const Installation& installation) {
    std::vector<Link> links{{"libibverbs-real.so.1", installation.real_library}};
    for (const std::string provider : {"libefa", "libmlx5"}) {
        std::error_code error;
        const auto real = std::filesystem::canonical(
            installation.real_library.parent_path() / (provider + ".so.1"), error);
        if (!error) {
            links.push_back({provider + "-real.so.1", real});
        }
    }
    return links;
}

/// Returns a directory with symbolic links to the real libraries of this machine. Returns an empty
/// string if the links in the directory of the front libraries are sufficient: they were made on
/// the build machine, but may also be correct on this machine.
std::string directory_of_other_libraries(const Installation& installation) {
    const std::vector<Link> links = links_of(installation);
    const auto is_there = [&installation](const Link& link) {
        std::error_code error;
        return std::filesystem::canonical(installation.front / link.name, error) == link.target;
    };
    if (std::ranges::all_of(links, is_there)) {
        return {};
    }
    const char* const rendezvous = softverbs_directory();
    if (rendezvous == nullptr) {
        throw std::runtime_error("cannot create a directory for the link to " +
                                 installation.real_library.string());
    }
    const std::filesystem::path directory =
        std::filesystem::path(rendezvous) / "libibverbs" /
        std::to_string(std::hash<std::string>()(installation.real_library));
    std::filesystem::create_directories(directory);
    for (const Link& link : links) {
        // Replace an existing link atomically, because other processes may be using it.
        const auto made = directory / ("new-" + std::to_string(::getpid()));
        std::filesystem::create_symlink(link.target, made);
        std::filesystem::rename(made, directory / link.name);
    }
    return directory;
}

} // namespace

void set_loader_environment(const Installation& installation) {
    constexpr std::string_view between_directories = ":;";
    constexpr std::string_view between_libraries = ": ";
    const std::string front = installation.front;
    if (front.find_first_of(between_directories) != std::string::npos) {
        throw std::runtime_error(front +
                                 " cannot be in LD_LIBRARY_PATH, because its name contains a "
                                 "colon or a semicolon; install softverbs in another directory");
    }
    std::string directories = variable("LD_LIBRARY_PATH");
    if (!has_entry(directories, between_directories, front)) {
        directories =
            joined(joined(directory_of_other_libraries(installation), front), directories);
    }
    // Entries of LD_PRELOAD are separated by spaces or colons. If the path contains such a
    // character, put the directory into LD_LIBRARY_PATH and only the file name into LD_PRELOAD.
    std::string library = installation.library;
    if (library.find_first_of(between_libraries) != std::string::npos) {
        directories = joined(directories, installation.library.parent_path());
        library = installation.library.filename();
    }
    std::string libraries = variable("LD_PRELOAD");
    if (!has_entry(libraries, between_libraries, library)) {
        libraries = joined(libraries, library);
    }
    const std::string sanitizer = installation.sanitizer;
    if (!sanitizer.empty() && !has_entry(libraries, between_libraries, sanitizer)) {
        libraries = joined(sanitizer, libraries);
    }
    ::setenv("LD_LIBRARY_PATH", directories.c_str(), 1);
    ::setenv("LD_PRELOAD", libraries.c_str(), 1);
}

} // namespace softverbs::tools
