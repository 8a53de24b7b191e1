// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "temporary_directory.hpp"

namespace rdmabuf::testing {

/// A directory with the part of sysfs that Topology reads. Tests fill it from a table; the
/// destructor removes it.
class SysfsTree {
  public:
    /// An empty machine: /sys exists, without any file.
    SysfsTree();
    /// The machine of a table with one line for each PCI function: its path below /sys/devices,
    /// then any of
    ///   gpu               class, vendor and device ID of one model of GPU
    ///   dma               those of an mlx5 data-direct function
    ///   nic=mlx5_0        a NIC with one active port
    ///   rate=400          rate of the port, in Gbit/s
    ///   down              the port is not active
    ///   numa=1            NUMA node; without it, numa_node is -1
    ///   link=32x16        maximum speed (GT/s) and width of the link
    /// The bridges on the path need no lines of their own.
    explicit SysfsTree(std::string_view table);

    /// The root directory: pass it to Topology::read().
    [[nodiscard]] const std::filesystem::path& root() const { return root_; }
    [[nodiscard]] std::filesystem::path sys() const { return root_ / "sys"; }

    /// Adds the PCI function of one line of a table.
    void add(const std::string& line) const { add_line(line); }
    /// Adds NUMA nodes, with a line of distances for each: "0: 10 21\n1: 21 10".
    void add_numa_nodes(std::string_view table) const;
    /// Writes a file below /sys. Creates its directories.
    void write(const std::string& path, std::string_view text) const;
    /// Replaces or creates a symbolic link below /sys.
    void link(const std::string& path, const std::string& target) const;

  private:
    void add_line(const std::string& line) const;
    /// Creates the directories and files of all functions on a path.
    void add_functions(const std::string& path) const;

    TemporaryDirectory directory_;
    /// The reader compares real paths.
    std::filesystem::path root_ = std::filesystem::canonical(directory_.path());
};

} // namespace rdmabuf::testing
