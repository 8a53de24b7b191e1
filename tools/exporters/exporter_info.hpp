// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>

#include "../text.hpp"

namespace rdmabuf::tools::exporters {

/// The state of an exporter on this machine.
struct ExporterInfo {
    /// The value of Exporter::name().
    std::string name;
    /// A short description of the memory, such as "NVIDIA GPU".
    std::string memory;
    /// False if this build of rdmabuf does not contain the exporter.
    bool built = false;
    /// False if the exporter exports memory of an object that the program has to pass, such as a
    /// protection domain: `availability` then has no meaning, and its reason names the object.
    bool standalone = true;
    /// True if the exporter can also allocate memory (Allocator).
    bool allocates = false;
    Availability availability = {};
    /// The kernel modules for this memory that are loaded, such as "nvidia 570.86.15". A module
    /// without a version, such as most modules of the Linux sources, is listed by its name only.
    std::vector<std::string> modules = {};
};

/// The result of `rdmabuf exporters`.
struct Report {
    std::vector<ExporterInfo> exporters = {};
};

/// Returns the names of all exporters that rdmabuf can be built with.
[[nodiscard]] std::vector<std::string> all_names();

/// Queries an exporter. The query can load and initialise the driver of a GPU.
/// @param name  one of all_names()
/// @param root  the directory that contains sys; a test can pass another than "/"
[[nodiscard]] ExporterInfo query(const std::string& name, const std::filesystem::path& root = "/");

[[nodiscard]] std::string to_text(const Report& report, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const Report& report);

} // namespace rdmabuf::tools::exporters
