// SPDX-License-Identifier: BSD-3-Clause
#include "environment.hpp"

#include <softverbs/softverbs.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace softverbs::tools {

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

/// Returns a directory with a symbolic link libibverbs-real.so.1 to the real libibverbs of this
/// machine. Returns an empty string if it is not needed, because the link in the directory of the
/// front library already refers to the same library.
std::string directory_of_other_library(const Installation& installation) {
    std::error_code error;
    const auto expected =
        std::filesystem::canonical(installation.front / "libibverbs-real.so.1", error);
    if (!error && expected == installation.real_library) {
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
    const auto link = directory / "libibverbs-real.so.1";
    // Replace the link atomically, because other processes may be using it.
    const auto made = directory / ("new-" + std::to_string(::getpid()));
    std::filesystem::create_symlink(installation.real_library, made);
    std::filesystem::rename(made, link);
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
        directories = joined(joined(directory_of_other_library(installation), front), directories);
    }
    // Entries of LD_PRELOAD are separated by spaces. If the path contains a space, put the
    // directory into LD_LIBRARY_PATH and only the file name into LD_PRELOAD.
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
