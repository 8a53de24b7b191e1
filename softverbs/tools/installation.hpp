// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

namespace softverbs::tools {

/// Where the parts of softverbs are. The build tree and an installation are laid out differently.
struct Installation {
    std::filesystem::path library;      // libsoftverbs.so
    std::filesystem::path front;        // the directory that has libibverbs.so.1
    std::filesystem::path real_library; // the libibverbs.so.1 that programs find without softverbs
    std::filesystem::path sanitizer;    // the runtime that libsoftverbs.so needs; empty: none
};

/// Throws std::runtime_error when a part is missing.
[[nodiscard]] Installation find_installation();

} // namespace softverbs::tools
