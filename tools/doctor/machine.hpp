// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/topology.hpp>

namespace rdmabuf::tools::doctor {

/// Returns the text, or an empty text if there is none. The result refers to @p text.
[[nodiscard]] inline std::string_view view(const std::optional<std::string>& text) noexcept {
    return text ? std::string_view(*text) : std::string_view();
}
// Deleted, because the result would refer to a temporary object.
std::string_view view(std::optional<std::string>&&) = delete;

/// The contents of a file, or the errno value of the open(2) or read(2) that failed.
struct FileText {
    std::optional<std::string> text;
    int error = 0;

    /// Returns the text, or an empty text if the file could not be read.
    [[nodiscard]] std::string_view view() const noexcept { return doctor::view(text); }
};

// PCI vendor IDs.
inline constexpr std::uint32_t amazon_vendor = 0x1d0f;
inline constexpr std::uint32_t amd_vendor = 0x1002;
inline constexpr std::uint32_t habana_vendor = 0x1da3;
inline constexpr std::uint32_t intel_vendor = 0x8086;
inline constexpr std::uint32_t mellanox_vendor = 0x15b3;
inline constexpr std::uint32_t nvidia_vendor = 0x10de;

inline constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20U;

/// A GPU or an accelerator, as sysfs describes it.
struct Gpu {
    PciAddress address;
    /// The PCI address as text, "0000:3b:00.0".
    std::string name;
    std::uint32_t vendor = 0;
    /// True for a VGA-compatible controller, which may be there for a display only, as in laptops.
    bool is_vga = false;
    /// The name of the kernel driver that is bound to the PCI function; empty if no driver is
    /// bound.
    std::string driver;
};
[[nodiscard]] inline bool is_nvidia(const Gpu* gpu) noexcept {
    return gpu->vendor == nvidia_vendor;
}

/// An RDMA device, as sysfs describes it.
struct NicFiles {
    std::string name;
    /// The PCI address as text; empty for a device that is not a PCI function.
    std::string pci = {};
    /// The name of the kernel driver: "mlx5_core", "efa", "rxe"; empty if sysfs does not have it.
    std::string driver = {};
    /// True for a device that is software, such as Soft-RoCE, Soft-iWARP or softverbs.
    bool software = false;
};

/// The files of a machine below a root directory: /sys, /proc and /dev. The root "/" is the machine
/// on which the program runs. Any other root is a copy of the files of a machine, on which nothing
/// can be executed. Files that are missing or malformed cause no exception.
class Machine {
  public:
    /// @param root  the directory that contains sys, proc and dev
    /// @throws Error ENOENT, EACCES or ENOTDIR if @p root is not a directory that can be read
    explicit Machine(const std::filesystem::path& root = "/");

    /// Returns true if the root is not "/", so that devices cannot be opened.
    [[nodiscard]] bool recorded() const noexcept { return !root_.empty(); }
    [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
    [[nodiscard]] Topology& topology() noexcept { return topology_; }

    // The functions below take absolute paths of the described machine, such as "/sys/class",
    // without the directory root().

    /// Returns the text of a file; of a longer file, about the first MiB.
    [[nodiscard]] FileText read(const std::string& path) const;
    /// Returns the first line of a file without blanks at its ends; empty if the file cannot be
    /// read.
    [[nodiscard]] std::string line(const std::string& path) const;
    /// Returns the non-negative decimal number at the start of a file; nullopt if there is none.
    [[nodiscard]] std::optional<std::uint64_t> number(const std::string& path) const;
    /// Returns the sorted names in a directory; empty if it cannot be read.
    [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
    /// Returns the last component of the target of a symbolic link; empty if it cannot be read.
    [[nodiscard]] std::string link_name(const std::string& path) const;
    [[nodiscard]] bool exists(const std::string& path) const;
    /// Opens a device file for reading and writing, and closes it. In the files of a recorded
    /// machine, a device file is empty, or has the errno value of open(2) as a decimal number.
    /// @return 0 or the errno value of open(2)
    [[nodiscard]] int open_error(const std::string& path) const;

    /// Returns the GPUs and accelerators, ordered by PCI address.
    [[nodiscard]] const std::vector<Gpu>& gpus() const noexcept { return gpus_; }
    /// Returns the RDMA devices in the order of the topology.
    [[nodiscard]] const std::vector<NicFiles>& nics() const noexcept { return nics_; }
    /// Returns the number of the first active port of an RDMA device; empty if no port is active.
    [[nodiscard]] std::string active_port(const std::string& nic) const;
    /// Returns true if sysfs is mounted at /sys. A container or chroot may have an empty /sys.
    [[nodiscard]] bool has_sysfs() const { return exists("/sys/class"); }
    /// Returns the release of the kernel, such as "6.12.107"; empty if it is not known.
    [[nodiscard]] std::string kernel_release() const;
    /// Returns true if /proc/cpuinfo has this word in its flags (x86).
    [[nodiscard]] bool has_processor_flag(std::string_view flag) const;
    /// Returns true if the processors report that a hypervisor runs this machine.
    [[nodiscard]] bool virtual_machine() const { return has_processor_flag("hypervisor"); }

    /// The root without a slash at its end; empty for "/".
    [[nodiscard]] const std::string& root() const noexcept { return root_; }
    /// Returns the paths with which the functions above were called. The value of a path is true if
    /// list() was called with it.
    [[nodiscard]] const std::map<std::string, bool>& asked() const noexcept { return asked_; }

  private:
    /// Adds @p path to asked(), and returns it with the root.
    [[nodiscard]] std::string full(const std::string& path, bool listed = false) const {
        bool& is_listed = asked_[path];
        is_listed = is_listed || listed;
        return root_ + path;
    }
    void find_gpus();
    void find_nics();

    std::string root_;
    mutable std::map<std::string, bool> asked_;
    Topology topology_;
    std::vector<Gpu> gpus_;
    std::vector<NicFiles> nics_;
};

/// Returns @p text without white space at its start and its end.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;
/// Returns the lines of @p text without their newlines.
[[nodiscard]] std::vector<std::string_view> lines(std::string_view text);
/// Returns the words of @p text, which are separated by blanks or tabs.
[[nodiscard]] std::vector<std::string_view> words(std::string_view text);
/// Returns the first two numbers of a version: {7, 3} for "7.3.0-rc1".
[[nodiscard]] std::pair<unsigned, unsigned> first_numbers(std::string_view version);
/// Finds the first line of @p text that begins with @p key. Returns the text after @p key in this
/// line, without blanks at both ends, or nullopt if there is no such line.
[[nodiscard]] std::optional<std::string> value_of(std::string_view text, std::string_view key);

} // namespace rdmabuf::tools::doctor
