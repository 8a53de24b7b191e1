// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "text.hpp"

namespace rdmabuf::tools {

/// A shared library that this process has loaded, or can load.
struct FoundLibrary {
    /// The name by which programs load the library, such as "libibverbs.so.1".
    std::string name;
    /// The real path of the file; empty if the library was not found.
    std::string path;
    /// The version in the name of the file, such as "1.14.44.0"; empty if the name has none.
    std::string version;
};

/// A function of rdma-core that rdmabuf looks up at run time, because some machines do not have it.
struct OptionalFunction {
    std::string name;
    std::string library;
    /// The first release of rdma-core that has the function; empty if all supported releases have
    /// it, and only the library can be missing.
    std::string release;
    bool found = false;
};

/// What `rdmabuf --version` reports.
struct VersionReport {
    std::string rdmabuf;
    std::string compiler;
    /// The version of libibverbs in its pkg-config file when this command was built.
    std::string built_with_libibverbs;
    /// True if librdmabuf, libfmt, zlib and the C++ library are linked statically. The libraries of
    /// rdma-core, libnl and the C library are always shared.
    bool static_build = false;
    std::vector<std::string> exporters;
    std::vector<FoundLibrary> libraries = {};
    std::vector<OptionalFunction> functions = {};
    /// The release of the running kernel, as uname(2) returns it.
    std::string kernel = {};
};

/// Queries this process and this machine. Loads the provider libraries libmlx5 and libefa, if they
/// are installed, to look up their functions.
[[nodiscard]] VersionReport read_versions();

/// Returns the names of the exporters that this build of rdmabuf contains.
[[nodiscard]] std::vector<std::string> built_exporters();

[[nodiscard]] std::string to_text(const VersionReport& report, const TextStyle& style);
/// Returns one JSON object and a newline.
[[nodiscard]] std::string to_json(const VersionReport& report);

} // namespace rdmabuf::tools
