// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

namespace callgrind {

/// Runs this program with @p arguments under callgrind. Returns the number of instructions in
/// @p function, which must have C linkage, and in its callees. Throws if valgrind cannot be started
/// or counts nothing.
inline long count(const std::string& function, const std::string& arguments) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command =
        "valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=" + function +
        " '" + self + "' " + arguments + " 2>&1";
    const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), &pclose);
    if (output == nullptr) {
        throw std::runtime_error("cannot start valgrind");
    }
    long collected = -1;
    std::string all;
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), output.get()) != nullptr) {
        all += line.data();
        if (const char* const found = std::strstr(line.data(), "Collected : "); found != nullptr) {
            collected = std::strtol(found + std::strlen("Collected : "), nullptr, 10);
        }
    }
    if (collected <= 0) {
        throw std::runtime_error("callgrind counted nothing:\n" + all);
    }
    return collected;
}

} // namespace callgrind
