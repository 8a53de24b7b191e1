// SPDX-License-Identifier: BSD-3-Clause
#include "machine.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <memory>

#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

#include <fmt/format.h>

namespace rdmabuf::tools::doctor {

namespace {

constexpr std::size_t longest_file = std::size_t{1} << 20U;

/// Returns the real path of @p root without a slash at its end; empty for "/".
/// @throws Error if @p root is not a directory that can be read
std::string checked_root(const std::filesystem::path& root) {
    std::array<char, PATH_MAX> real{};
    if (::realpath(root.c_str(), real.data()) == nullptr) {
        throw Error(errno, "realpath", root.string());
    }
    DIR* const directory = ::opendir(real.data());
    if (directory == nullptr) {
        throw Error(errno, "opendir", root.string());
    }
    ::closedir(directory);
    const std::string path = real.data();
    return path == "/" ? "" : path;
}

/// Returns true for the PCI functions that Machine::gpus() lists.
bool is_gpu(const PciFunction& function, std::string_view driver) {
    if (!function.identity) {
        return false;
    }
    const std::uint32_t vendor = function.identity->vendor;
    const std::uint32_t base_class = function.identity->class_code >> 16U;
    constexpr std::uint32_t display = 0x03;
    constexpr std::uint32_t accelerator = 0x12;
    constexpr std::array<std::uint32_t, 4> vendors{nvidia_vendor, amd_vendor, intel_vendor,
                                                   habana_vendor};
    if (driver == "neuron") {
        return true;
    }
    // Display controllers of other vendors, such as those of BMCs and virtual machines, have no
    // memory that RDMA devices access.
    return (base_class == display || base_class == accelerator) &&
           std::ranges::find(vendors, vendor) != vendors.end();
}

} // namespace

Machine::Machine(const std::filesystem::path& root)
    : root_(checked_root(root)), topology_(Topology::read(root_.empty() ? "/" : root_)) {
    find_gpus();
    find_nics();
}

void Machine::find_gpus() {
    for (const PciFunction& function : topology_.pci_functions()) {
        const std::string name = to_string(function.address);
        std::string link = "/sys/bus/pci/devices/";
        link.append(name).append("/driver");
        const std::string driver = link_name(link);
        if (is_gpu(function, driver)) {
            gpus_.push_back({.address = function.address,
                             .name = name,
                             .vendor = function.identity->vendor,
                             .is_vga = function.identity->class_code >> 8U == 0x0300,
                             .driver = driver});
        }
    }
}

void Machine::find_nics() {
    for (const Nic& nic : topology_.nics()) {
        const std::string directory = "/sys/class/infiniband/" + nic.name;
        NicFiles files{.name = nic.name};
        files.pci = nic.pci ? to_string(nic.pci->address) : "";
        files.driver =
            exists(directory + "/parent") ? "rxe" : link_name(directory + "/device/driver");
        const bool softverbs = line(directory + "/node_desc").starts_with("softverbs ");
        if (softverbs) {
            files.driver = "softverbs";
        }
        files.software = softverbs || files.driver == "rxe" || files.driver == "siw" ||
                         (files.pci.empty() && files.driver.empty());
        nics_.push_back(std::move(files));
    }
}

FileText Machine::read(const std::string& path) const {
    const UniqueFd file(::open(full(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
        return {.text = std::nullopt, .error = errno};
    }
    std::string text;
    std::array<char, 4096> part{};
    while (text.size() < longest_file) {
        const ssize_t length = ::read(file.get(), part.data(), part.size());
        if (length < 0) {
            return {.text = std::nullopt, .error = errno};
        }
        if (length == 0) {
            break;
        }
        text.append(part.data(), static_cast<std::size_t>(length));
    }
    return {.text = std::move(text), .error = 0};
}

std::string Machine::line(const std::string& path) const {
    const FileText file = read(path);
    if (!file.text) {
        return {};
    }
    const std::string_view text = *file.text;
    return std::string(trimmed(text.substr(0, text.find('\n'))));
}

std::optional<std::uint64_t> Machine::number(const std::string& path) const {
    const std::string text = line(path);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;
}

std::vector<std::string> Machine::list(const std::string& path) const {
    struct Close {
        void operator()(DIR* open) const noexcept { ::closedir(open); }
    };
    const std::unique_ptr<DIR, Close> open(::opendir(full(path, true).c_str()));
    std::vector<std::string> names;
    if (open == nullptr) {
        return names;
    }
    // NOLINTNEXTLINE(concurrency-mt-unsafe): each call has its own directory stream.
    while (const dirent* const entry = ::readdir(open.get())) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") {
            names.emplace_back(name);
        }
    }
    std::ranges::sort(names);
    return names;
}

std::string Machine::link_name(const std::string& path) const {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(full(path).c_str(), target.data(), target.size());
    if (length <= 0) {
        return {};
    }
    const std::string_view text(target.data(), static_cast<std::size_t>(length));
    return std::string(text.substr(text.rfind('/') + 1));
}

bool Machine::exists(const std::string& path) const {
    return ::access(full(path).c_str(), F_OK) == 0;
}

int Machine::open_error(const std::string& path) const {
    const UniqueFd file(::open(full(path).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
        return errno;
    }
    return recorded() ? static_cast<int>(number(path).value_or(0)) : 0;
}

std::string Machine::active_port(const std::string& nic) const {
    const std::string ports = "/sys/class/infiniband/" + nic + "/ports";
    for (const std::string& number : list(ports)) {
        if (line(fmt::format("{}/{}/state", ports, number)).starts_with("4:")) {
            return number;
        }
    }
    return {};
}

std::string Machine::kernel_release() const {
    return line("/proc/sys/kernel/osrelease");
}

bool Machine::has_processor_flag(std::string_view flag) const {
    const FileText file = read("/proc/cpuinfo");
    if (!file.text) {
        return false;
    }
    const auto flags = value_of(*file.text, "flags");
    if (!flags) {
        return false;
    }
    const auto all = words(*flags);
    return std::ranges::find(all, flag) != all.end();
}

std::string_view trimmed(std::string_view text) noexcept {
    constexpr std::string_view blanks = " \t\r\n";
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> lines(std::string_view text) {
    std::vector<std::string_view> all;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        all.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return all;
}

std::vector<std::string_view> words(std::string_view text) {
    std::vector<std::string_view> all;
    for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
        const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
        all.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
    return all;
}

std::pair<unsigned, unsigned> first_numbers(std::string_view version) {
    std::pair<unsigned, unsigned> numbers{};
    const char* const end = version.data() + version.size();
    const auto [after, error] = std::from_chars(version.data(), end, numbers.first);
    if (error == std::errc() && after != end) {
        std::from_chars(after + 1, end, numbers.second);
    }
    return numbers;
}

std::optional<std::string> value_of(std::string_view text, std::string_view key) {
    for (const std::string_view each : lines(text)) {
        if (each.starts_with(key)) {
            return std::string(trimmed(each.substr(key.size())));
        }
    }
    return std::nullopt;
}

} // namespace rdmabuf::tools::doctor
