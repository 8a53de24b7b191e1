// SPDX-License-Identifier: BSD-3-Clause
#include "machine_dump.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <rdmabuf/error.hpp>
#include <rdmabuf/version.hpp>

#include "../options.hpp"
#include "kernel_files.hpp"

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

namespace fs = std::filesystem;

/// The format of the dumps that this version writes. Dumps of another format are refused.
constexpr std::uint64_t dump_format = 1;

constexpr std::string_view hex_digits = "0123456789abcdef";

Json json_of_bytes(const std::string& bytes) {
    const auto is_text = [](char each) {
        return (each >= ' ' && each < 0x7f) || each == '\n' || each == '\t';
    };
    if (std::ranges::all_of(bytes, is_text)) {
        return bytes;
    }
    std::string digits;
    for (const char each : bytes) {
        const auto byte = static_cast<unsigned char>(each);
        digits += hex_digits[byte >> 4U];
        digits += hex_digits[byte & 0xfU];
    }
    return {{"hex", std::move(digits)}};
}

/// @throws Error if the file cannot be written
void write_file(const fs::path& path, std::string_view bytes) {
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    if (!file.flush()) {
        throw Error(errno != 0 ? errno : EIO, "write", path.string());
    }
}

/// Returns the variables of /proc/self/environ whose names have a prefix of the variables that
/// libibverbs and libmlx5 read. Leaves out all others, because they may be secret.
std::string verbs_variables(std::string_view environment) {
    std::string kept;
    while (!environment.empty()) {
        const std::size_t length = std::min(environment.find('\0'), environment.size());
        const std::string_view variable = environment.substr(0, length);
        constexpr std::array prefixes{"RDMAV_", "IBV_", "MLX5_"};
        if (std::ranges::any_of(prefixes,
                                [&](const char* prefix) { return variable.starts_with(prefix); })) {
            kept.append(variable).push_back('\0');
        }
        environment.remove_prefix(std::min(length + 1, environment.size()));
    }
    return kept;
}

/// Returns the relative path from @p directory to @p target. Both are absolute paths below the same
/// root.
std::string relative_target(const std::string& directory, std::string_view target) {
    std::string up;
    for (auto i = std::ranges::count(directory, '/'); i > 0; --i) {
        up += "../";
    }
    return up.append(target.substr(1));
}

class Collector {
  public:
    explicit Collector(const Machine& machine) : machine_(machine) {}

    /// Adds the symbolic links on a path and, if it exists, the file or directory at its end.
    /// @param listed  true to add the names in the directory as well
    void add(std::string_view path, bool listed = false) {
        // The resolved beginning of the path, which contains no symbolic links.
        std::string done;
        std::string rest(path);
        int links = 0;
        while (!rest.empty()) {
            const std::size_t begin = std::min(rest.find_first_not_of('/'), rest.size());
            const std::size_t end = std::min(rest.find('/', begin), rest.size());
            const std::string name = rest.substr(begin, end - begin);
            rest.erase(0, end);
            if (name == "..") {
                done.erase(std::min(done.rfind('/'), done.size()));
                continue;
            }
            if (name.empty() || name == ".") {
                continue;
            }
            const std::string at = fmt::format("{}/{}", done, name);
            struct stat status {};
            if (::lstat((machine_.root() + at).c_str(), &status) != 0) {
                // The device nodes of softverbs do not exist as files, but they can be opened. Add
                // an empty file for them.
                if (at.starts_with("/dev/") && machine_.open_error(std::string(path)) == 0) {
                    files_[path] = "";
                }
                return;
            }
            if (!S_ISLNK(status.st_mode)) {
                done = at;
                continue;
            }
            constexpr int most_links = 40; // as Linux, MAXSYMLINKS
            const std::string target = add_link(at, done);
            if (target.empty() || ++links > most_links) {
                return;
            }
            rest.insert(0, target + "/");
        }
        add_real(done, listed);
    }

    /// Sets the text of a file in the dump, also if the machine has no such file, or one with
    /// another text.
    void add_text(std::string_view path, std::string text) { files_[path] = std::move(text); }

    [[nodiscard]] Json take() noexcept { return std::move(files_); }

  private:
    /// Adds a symbolic link. @return its target, relative to @p directory; empty if it is
    /// unreadable
    std::string add_link(const std::string& at, const std::string& directory) {
        std::array<char, PATH_MAX> text{};
        const ssize_t length = ::readlink((machine_.root() + at).c_str(), text.data(), text.size());
        std::string target(text.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
        if (target.starts_with('/')) {
            target = relative_target(directory, target);
        }
        if (!target.empty()) {
            files_[at] = {{"link", target}};
        }
        return target;
    }

    /// Adds a file or directory whose path has no symbolic links.
    void add_real(const std::string& path, bool listed) {
        struct stat status {};
        if (path.empty() || ::lstat((machine_.root() + path).c_str(), &status) != 0) {
            return;
        }
        if (S_ISDIR(status.st_mode)) {
            files_[path] = {{"directory", true}};
            for (const std::string& name :
                 listed ? machine_.list(path) : std::vector<std::string>()) {
                const std::string entry = fmt::format("{}/{}", path, name);
                struct stat of_entry {};
                if (files_.find(entry) == nullptr &&
                    ::lstat((machine_.root() + entry).c_str(), &of_entry) == 0) {
                    if (S_ISLNK(of_entry.st_mode)) {
                        add_link(entry, path);
                    } else if (S_ISDIR(of_entry.st_mode)) {
                        files_[entry] = {{"directory", true}};
                    } else {
                        files_[entry] = "";
                    }
                }
            }
        } else if (!S_ISREG(status.st_mode)) {
            // No condition opens other nodes, and opening the node of a GPU can take seconds.
            const int error = path.starts_with("/dev/infiniband/") ? machine_.open_error(path) : 0;
            files_[path] = error == 0 ? "" : std::to_string(error);
        } else if (const FileText file = machine_.read(path); file.text) {
            files_[path] = json_of_bytes(path.ends_with("/environ") ? verbs_variables(*file.text)
                                                                    : *file.text);
        } else {
            files_[path] = {{"unreadable", true}};
        }
    }

    const Machine& machine_;
    Json files_ = Json(std::initializer_list<Json::Member>());
};

/// Returns the files that Topology::read() reads, and the file with the release of the kernel.
std::vector<std::string> files_of(const Topology& topology, const Machine& machine) {
    std::vector<std::string> paths{"/proc/sys/kernel/osrelease"};
    for (const PciFunction& function : topology.pci_functions()) {
        for (const char* const name :
             {"vendor", "device", "class", "numa_node", "max_link_speed", "max_link_width"}) {
            paths.push_back(
                fmt::format("/sys/bus/pci/devices/{}/{}", to_string(function.address), name));
        }
    }
    for (const std::string& node : machine.list("/sys/devices/system/node")) {
        paths.push_back(fmt::format("/sys/devices/system/node/{}/distance", node));
    }
    for (const Nic& nic : topology.nics()) {
        const std::string directory = "/sys/class/infiniband/" + nic.name;
        paths.push_back(directory + "/device");
        for (const std::string& port : machine.list(directory + "/ports")) {
            paths.push_back(fmt::format("{}/ports/{}/state", directory, port));
            paths.push_back(fmt::format("{}/ports/{}/rate", directory, port));
        }
    }
    return paths;
}

/// Writes the files of dumps below a directory.
class Writer {
  public:
    Writer(fs::path root, const fs::path& dump) : root_(std::move(root)), dump_(dump) {}

    void file(const std::string& path, std::string_view bytes) const {
        write_file(prepare(path), bytes);
    }
    void link(const std::string& path, const std::string& target) const {
        fs::create_symlink(target, prepare(path));
    }
    void directory(const std::string& path) const { fs::create_directories(prepare(path)); }
    void unreadable(const std::string& path) const {
        file(path, "");
        fs::permissions(root_ / path.substr(1), fs::perms::none);
    }
    [[noreturn]] void refuse(std::string_view reason) const {
        throw UsageError(fmt::format("--replay {}: {}", dump_.string(), reason));
    }

  private:
    /// Creates the parent directory of @p path. Refuses a path that leads out of the root.
    [[nodiscard]] fs::path prepare(const std::string& path) const {
        const fs::path relative = fs::path(path).relative_path();
        if (!path.starts_with('/') || relative.lexically_normal() != relative ||
            relative.begin() == relative.end() || *relative.begin() == "..") {
            refuse(fmt::format("\"{}\" is not an absolute path", path));
        }
        fs::path full = root_ / relative;
        // A dump is untrusted input: its links must not lead writes out of the root.
        const fs::path real = fs::weakly_canonical(full.parent_path());
        if (std::mismatch(root_.begin(), root_.end(), real.begin(), real.end()).first !=
            root_.end()) {
            refuse(fmt::format("\"{}\" is behind a link that leads out of the dump", path));
        }
        fs::create_directories(real);
        return full;
    }

    fs::path root_;
    const fs::path& dump_;
};

void write_files(const Writer& writer, const Json& files) {
    // The links are written last, so that no file is written through one.
    for (const bool links : {false, true}) {
        for (const auto& [path, value] : *files.members()) {
            const Json* const link = value.find("link");
            if ((link != nullptr) != links) {
                continue;
            }
            if (const std::string* const text = value.text()) {
                writer.file(path, *text);
            } else if (link != nullptr && link->text() != nullptr) {
                writer.link(path, *link->text());
            } else if (value.find("directory") != nullptr) {
                writer.directory(path);
            } else if (value.find("unreadable") != nullptr) {
                writer.unreadable(path);
            } else if (const Json* const hex = value.find("hex"); hex != nullptr && hex->text()) {
                std::string bytes;
                for (std::size_t i = 0; i + 1 < hex->text()->size(); i += 2) {
                    bytes += static_cast<char>(std::stoi(hex->text()->substr(i, 2), nullptr, 16));
                }
                writer.file(path, bytes);
            } else {
                writer.refuse(fmt::format("the value of \"{}\" is not a file", path));
            }
        }
    }
}

/// Decodes base64. Ignores the padding and all other characters that are not base64 digits.
std::string from_base64(std::string_view text) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    unsigned bits = 0;
    unsigned count = 0;
    for (const char each : text) {
        const std::size_t value = digits.find(each);
        if (value == std::string_view::npos) {
            continue;
        }
        bits = (bits << 6U | static_cast<unsigned>(value)) & 0xffffU;
        count += 6;
        if (count >= 8) {
            count -= 8;
            bytes += static_cast<char>(bits >> count & 0xffU);
        }
    }
    return bytes;
}

std::string inflated(const Writer& writer, const std::string& text) {
    const std::string compressed = from_base64(text);
    constexpr std::size_t config_space = 4096;
    std::string bytes(config_space, '\0');
    uLongf size = bytes.size();
    if (::uncompress(reinterpret_cast<Bytef*>(bytes.data()), &size,
                     reinterpret_cast<const Bytef*>(compressed.data()),
                     compressed.size()) != Z_OK) {
        writer.refuse("the registers of a PCI function cannot be decompressed");
    }
    bytes.resize(size);
    return bytes;
}

/// Writes the sysfs files and links of one PCI function. @p function is its entry in the output of
/// `rdma_topo dump`.
void write_function(const Writer& writer, const Json& function) {
    const auto member = [&function](std::string_view name) {
        const Json* const found = function.find(name);
        return found != nullptr && found->text() != nullptr ? *found->text() : std::string();
    };
    const std::string real = member("realpath");
    const std::string modalias = member("modalias");
    // pci:v000015B3d00001021sv…sd…bc02sc07i00
    const auto digits = [&modalias](std::string_view key, std::size_t from, std::size_t length) {
        const std::size_t at = modalias.find(key, from);
        std::string text = at != std::string::npos ? modalias.substr(at + key.size(), length) : "";
        std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
        return text;
    };
    const std::size_t subsystem = modalias.find("sd");
    if (!real.starts_with("/sys/devices/") || !modalias.starts_with("pci:v") ||
        subsystem == std::string::npos) {
        writer.refuse(R"(a PCI function has no "realpath" or no "modalias")");
    }
    const std::string name = real.substr(real.rfind('/') + 1);
    writer.link("/sys/bus/pci/devices/" + name,
                "../../.." + real.substr(std::string("/sys").size()));
    // A modalias has 8 digits for each ID, and these files have 4.
    writer.file(real + "/vendor", "0x" + digits("v", 0, 8).substr(4) + "\n");
    writer.file(real + "/device", "0x" + digits("d", 0, 8).substr(4) + "\n");
    writer.file(real + "/class", "0x" + digits("bc", subsystem, 2) + digits("sc", subsystem, 2) +
                                     digits("i", subsystem, 2) + "\n");
    if (const std::string config = member("config"); !config.empty()) {
        writer.file(real + "/config", inflated(writer, config));
    }
    if (const Json* const node = function.find("numa_node"); node != nullptr && node->number()) {
        writer.file(real + "/numa_node", fmt::format("{}\n", *node->number()));
    }
    if (const Json* const group = function.find("iommu_group"); group && group->number()) {
        writer.link(
            real + "/iommu_group",
            relative_target(real, fmt::format("/sys/kernel/iommu_groups/{}", *group->number())));
    }
    const Json* const subsystems = function.find("subsystems");
    const Json* const nics = subsystems != nullptr ? subsystems->find("infiniband") : nullptr;
    if (nics != nullptr && nics->elements() != nullptr) {
        for (const Json& nic : *nics->elements()) {
            if (nic.text() != nullptr) {
                const std::string directory = real + "/infiniband/" + *nic.text();
                writer.link(directory + "/device", "../..");
                writer.link("/sys/class/infiniband/" + *nic.text(),
                            "../../" + directory.substr(std::string("/sys/").size()));
            }
        }
    }
}

} // namespace

void write_dump(const fs::path& file, const Machine& machine, const Report& report) {
    // Copy the paths, because the collector adds further ones to Machine::asked().
    const auto asked = machine.asked(); // NOLINT(performance-unnecessary-copy-initialization)
    Collector collector(machine);
    for (const std::string& path : files_of(machine.topology(), machine)) {
        collector.add(path);
    }
    for (const char* const directory :
         {"/sys/bus/pci/devices", "/sys/class/infiniband", "/sys/devices/system/node"}) {
        collector.add(directory, true);
    }
    for (const auto& [path, listed] : asked) {
        collector.add(path, listed);
    }
    if (const KernelLog log = read_kernel_log(machine); log.text) {
        collector.add_text(recorded_kernel_log, examined_lines(*log.text));
    }
    const Json dump{{"rdmabuf_dump", dump_format},
                    {"version", version()},
                    {"report", to_json(report)},
                    {"files", collector.take()}};
    write_file(file, dump.dump());
}

ReplayedMachine::ReplayedMachine(const fs::path& dump) {
    std::ifstream file(dump, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file) {
        throw Error(errno != 0 ? errno : EIO, "read", dump.string());
    }
    std::string pattern = fs::temp_directory_path() / "rdmabuf-replay-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) {
        throw Error(errno, "mkdtemp", pattern);
    }
    root_ = fs::canonical(pattern);
    const Writer writer(root_, dump);
    try {
        const Json json = Json::parse(text);
        const Json* const files = json.find("files");
        const Json* const format = json.find("rdmabuf_dump");
        if (format != nullptr && format->number() != dump_format) {
            writer.refuse(
                "another version of rdmabuf has written the dump, in a format that this "
                "one does not know");
        }
        if (files != nullptr && files->members() != nullptr) {
            write_files(writer, *files);
        } else if (json.elements() != nullptr && !json.elements()->empty()) {
            for (const Json& function : *json.elements()) {
                write_function(writer, function);
            }
        } else {
            writer.refuse("neither written by rdmabuf doctor --dump nor by rdma_topo dump");
        }
    } catch (const std::invalid_argument& error) {
        fs::remove_all(root_);
        writer.refuse(
            std::string("neither written by rdmabuf doctor --dump nor by rdma_topo dump: ") +
            error.what());
    } catch (...) {
        fs::remove_all(root_);
        throw;
    }
}

ReplayedMachine::~ReplayedMachine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
}

} // namespace rdmabuf::tools::doctor
