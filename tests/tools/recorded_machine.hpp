// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "sysfs_tree.hpp"

namespace rdmabuf::testing {

/// A finding that a machine must have.
struct ExpectedFinding {
    /// "pass", "fail" or "unknown".
    std::string verdict;
    /// "C-31"
    std::string id;
    /// The subject of the finding; its parts are separated by blanks. Empty for the whole machine.
    std::string subject;
    /// A text that the value, the meaning or the remedy of the finding contains; may be empty.
    std::string text;
};

/// The directories sys, proc and dev of a machine, made in a temporary directory from a text file,
/// and the findings of `rdmabuf doctor` that the file demands. The file has one directive a line:
///
///   pci PATH [WORD...]            a PCI function: a line of the table of SysfsTree
///   numa NODE: DISTANCE...        a NUMA node: a line of SysfsTree::add_numa_nodes()
///   driver BDF NAME               the driver of a PCI function
///   config BDF [gone] [short] [acs=N] [ats=N] [control=N]
///                                 the configuration space: with `gone` that of a function that
///                                 does not answer; with `short` only the 64 bytes that any user
///                                 can read; otherwise with the registers ACS Control, ATS Control
///                                 and Device Control
///   uverbs NIC NODE [no-node]     the entry of a NIC in /sys/class/infiniband_verbs and, without
///                                 `no-node`, the file in /dev/infiniband
///   file PATH TEXT                a file with one line; several lines for one path are joined
///   gzip PATH TEXT                a file with one line, compressed by gzip
///   node PATH                     an empty file in place of a device node
///   identity BDF VENDOR           the PCI vendor ID of a function
///   remove PATH                   removes a file that an earlier line has made
///   fail | pass | unknown ID [SUBJECT...] [~ TEXT]
///                                 a demanded finding. The lines with `fail` are complete: any
///                                 other failed finding is an error.
///   exit STATUS                   the demanded exit status
///   result TEXT                   a text that the result contains
///
/// Empty lines and lines that begin with '#' are ignored.
class RecordedMachine {
  public:
    /// @throws std::invalid_argument for a line that is no directive
    explicit RecordedMachine(const std::filesystem::path& description);

    [[nodiscard]] const std::filesystem::path& root() const { return tree_.root(); }
    [[nodiscard]] const std::vector<ExpectedFinding>& expected() const { return expected_; }
    [[nodiscard]] const std::vector<std::string>& results() const { return results_; }
    [[nodiscard]] int exit_status() const { return exit_status_; }

  private:
    void add_line(const std::string& line);
    void add_expected(const std::string& verdict, const std::string& rest);
    void add_config(const std::string& rest) const;
    void add_uverbs(const std::string& rest) const;
    /// Appends a line to the file at @p path below the root.
    void append(const std::string& path, const std::string& text) const;

    SysfsTree tree_;
    std::vector<ExpectedFinding> expected_;
    std::vector<std::string> results_;
    int exit_status_ = -1;
};

} // namespace rdmabuf::testing
