// SPDX-License-Identifier: BSD-3-Clause
#include "version.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/version.hpp>

#include "json.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace rdmabuf::tools {

namespace {

struct FunctionRow {
    const char* library;
    const char* name;
    /// The version of the symbol; nullptr for the functions of providers, which are looked up
    /// without a version.
    const char* symbol_version;
    const char* release;
};
constexpr std::array functions{
    FunctionRow{"libibverbs.so.1", "ibv_reg_mr_ex", "IBVERBS_1.15", "59"},
    FunctionRow{"libibverbs.so.1", "ibv_alloc_dmah", "IBVERBS_1.15", "59"},
    FunctionRow{"libibverbs.so.1", "ibv_dm_export_dmabuf_fd", "IBVERBS_1.16", "62"},
    FunctionRow{"libibverbs.so.1", "ibv_alloc_buf", "IBVERBS_1.17", "64"},
    FunctionRow{"libibverbs.so.1", "ibv_export_buf_dmabuf_fd", "IBVERBS_1.18", "65"},
    FunctionRow{"libmlx5.so.1", "mlx5dv_reg_dmabuf_mr", nullptr, "54"},
    FunctionRow{"libmlx5.so.1", "mlx5dv_get_data_direct_sysfs_path", nullptr, "54"},
    FunctionRow{"libefa.so.1", "efadv_create_qp_ex", nullptr, ""},
};

struct ExporterRow {
    const char* name;
    bool built;
};
constexpr std::array exporters{
    ExporterRow{"cuda", RDMABUF_HAVE_PROVIDER_CUDA != 0},
    ExporterRow{"level_zero", RDMABUF_HAVE_PROVIDER_LEVEL_ZERO != 0},
    ExporterRow{"rocm", RDMABUF_HAVE_PROVIDER_ROCM != 0},
    ExporterRow{"habana", RDMABUF_HAVE_PROVIDER_HABANA != 0},
    ExporterRow{"neuron", RDMABUF_HAVE_PROVIDER_NEURON != 0},
    ExporterRow{"drm", RDMABUF_HAVE_PROVIDER_DRM != 0},
    ExporterRow{"dma_heap", RDMABUF_HAVE_PROVIDER_DMA_HEAP != 0},
    ExporterRow{"udmabuf", RDMABUF_HAVE_PROVIDER_UDMABUF != 0},
    ExporterRow{"memfd", RDMABUF_HAVE_PROVIDER_MEMFD != 0},
    ExporterRow{"external", RDMABUF_HAVE_PROVIDER_EXTERNAL != 0},
    ExporterRow{"verbs_dm", RDMABUF_HAVE_PROVIDER_VERBS_DM != 0},
    ExporterRow{"verbs_buf", RDMABUF_HAVE_PROVIDER_VERBS_BUF != 0},
    ExporterRow{"vfio", RDMABUF_HAVE_PROVIDER_VFIO != 0},
};

/// Returns the paths of all shared objects of this process.
std::vector<std::string> loaded_paths() {
    std::vector<std::string> paths;
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
                static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
            }
            return 0;
        },
        &paths);
    return paths;
}

/// Resolves the symbolic links in @p path, and takes the version from the file name after ".so.".
FoundLibrary describe(const std::string& name, const std::string& path) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::canonical(path, failed);
    FoundLibrary library{.name = name, .path = failed ? path : real.string(), .version = {}};
    const std::string file = std::filesystem::path(library.path).filename().string();
    constexpr std::string_view before_version = ".so.";
    if (const std::size_t at = file.find(before_version); at != std::string::npos) {
        library.version = file.substr(at + before_version.size());
    }
    return library;
}

std::vector<FoundLibrary> find_libraries() {
    std::vector<FoundLibrary> found;
    const std::vector<std::string> paths = loaded_paths();
    for (const char* const name :
         {"libsoftverbs.so", "libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1", "libefa.so.1"}) {
        const auto loaded = std::ranges::find_if(paths, [name](const std::string& path) {
            return std::filesystem::path(path).filename().string().starts_with(name);
        });
        if (loaded != paths.end()) {
            found.push_back(describe(name, *loaded));
        } else if (std::string_view(name) != "libsoftverbs.so") {
            found.push_back({.name = name, .path = {}, .version = {}});
        }
    }
    return found;
}

std::string compiler() {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

} // namespace

std::vector<std::string> built_exporters() {
    std::vector<std::string> names;
    for (const ExporterRow& row : exporters) {
        if (row.built) {
            names.emplace_back(row.name);
        }
    }
    return names;
}

VersionReport read_versions() {
    VersionReport report{.rdmabuf = std::string(version()),
                         .compiler = compiler(),
                         .built_with_libibverbs = RDMABUF_BUILT_WITH_LIBIBVERBS,
                         .static_build = RDMABUF_STATIC_COMMAND != 0,
                         .exporters = built_exporters()};
    for (const FunctionRow& row : functions) {
        // The library stays loaded, so that find_libraries() finds it.
        void* const library = ::dlopen(row.library, RTLD_LAZY | RTLD_LOCAL);
        void* function = nullptr;
        if (row.symbol_version != nullptr) {
            function = ::dlvsym(RTLD_DEFAULT, row.name, row.symbol_version);
        } else if (library != nullptr) {
            function = ::dlsym(library, row.name);
        }
        report.functions.push_back({.name = row.name,
                                    .library = row.library,
                                    .release = row.release,
                                    .found = function != nullptr});
    }
    report.libraries = find_libraries();
    utsname system{};
    if (::uname(&system) == 0) {
        report.kernel = system.release;
    }
    return report;
}

std::string to_text(const VersionReport& report, const TextStyle& style) {
    std::string out = fmt::format("rdmabuf {}\n", report.rdmabuf);
    out += "\n" + paint(style, Colour::heading, "Built with") + "\n";
    out += field(style, "compiler", report.compiler);
    out += field(style, "libibverbs", report.built_with_libibverbs);
    out += field(style, "exporters", fmt::format("{}", fmt::join(report.exporters, ", ")));
    out += field(style, "linked",
                 report.static_build ? "statically, except rdma-core, whose providers are plugins"
                                     : "dynamically");
    out += "\n" + paint(style, Colour::heading, "Found") + "\n";
    out += field(style, "kernel", report.kernel);
    for (const FoundLibrary& library : report.libraries) {
        out += field(style, library.name,
                     library.path.empty() ? paint(style, Colour::bad, "not found") : library.path);
    }
    out += "\n" + paint(style, Colour::heading, "Optional functions") + "\n";
    for (const OptionalFunction& function : report.functions) {
        std::string answer = paint(style, Colour::good, "found");
        if (!function.found) {
            answer = paint(style, Colour::bad, "missing") + " from " + function.library;
            answer += function.release.empty() ? "" : "; rdma-core " + function.release + " has it";
        }
        out += wrap(style, function.name + ": " + answer, "  ", "    ");
    }
    return out;
}

std::string to_json(const VersionReport& report) {
    Json json;
    json["rdmabuf"] = report.rdmabuf;
    json["compiler"] = report.compiler;
    json["built_with_libibverbs"] = report.built_with_libibverbs;
    json["static"] = report.static_build;
    json["exporters"] = report.exporters;
    json["kernel"] = report.kernel;
    json["libraries"] = Json::array();
    for (const FoundLibrary& library : report.libraries) {
        json["libraries"].push_back({{"name", library.name},
                                     {"path", or_null(library.path)},
                                     {"version", or_null(library.version)}});
    }
    json["functions"] = Json::array();
    for (const OptionalFunction& function : report.functions) {
        json["functions"].push_back({{"name", function.name},
                                     {"library", function.library},
                                     {"rdma_core", or_null(function.release)},
                                     {"found", function.found}});
    }
    return json.dump();
}

} // namespace rdmabuf::tools
