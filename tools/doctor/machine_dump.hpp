// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

#include "machine.hpp"
#include "report.hpp"

namespace rdmabuf::tools::doctor {

/// Writes a JSON object with the files of @p machine that `rdmabuf doctor` has read, and with the
/// report, for ReplayedMachine on another machine. Its member "files" has a member for each path: a
/// text, or an object {"link": TARGET}, {"directory": true}, {"unreadable": true} or, for bytes
/// that are not printable ASCII, {"hex": DIGITS}. A device node has the text that
/// Machine::open_error() reads.
/// @throws Error if @p file cannot be written
void write_dump(const std::filesystem::path& file, const Machine& machine, const Report& report);

/// A temporary directory with the files of a dump, which can be the root of a Machine. The
/// destructor removes the directory.
class ReplayedMachine {
  public:
    /// @param dump  a file of write_dump(), or the output of `rdma_topo dump` of rdma-core, which
    ///              contains only the PCI functions
    /// @throws UsageError if the file is not such a dump; std::system_error if a file cannot be
    ///         read or written
    explicit ReplayedMachine(const std::filesystem::path& dump);
    ~ReplayedMachine();
    ReplayedMachine(const ReplayedMachine&) = delete;
    ReplayedMachine& operator=(const ReplayedMachine&) = delete;

    [[nodiscard]] const std::filesystem::path& root() const noexcept { return root_; }

  private:
    std::filesystem::path root_;
};

} // namespace rdmabuf::tools::doctor
