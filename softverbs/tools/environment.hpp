// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

namespace softverbs::tools {

/// Paths of the softverbs files, in a build tree or in an installation.
struct Installation {
    std::filesystem::path library;      // libsoftverbs.so
    std::filesystem::path front;        // the directory of softverbs's own libibverbs.so.1
    std::filesystem::path real_library; // the libibverbs.so.1 that programs find without softverbs
    std::filesystem::path sanitizer;    // sanitizer runtime of libsoftverbs.so; may be empty
};

/// Throws std::runtime_error if a file of softverbs or the real libibverbs does not exist.
[[nodiscard]] Installation find_installation();

/// Sets LD_PRELOAD and LD_LIBRARY_PATH in this process. Programs that it executes then find
/// softverbs, whether they are linked with libibverbs or load it with dlopen(3).
/// @throws std::runtime_error  if a directory or a link cannot be created, or if the path of the
///                             directory of the front libraries contains a colon or a semicolon
void set_loader_environment(const Installation& installation);

} // namespace softverbs::tools
