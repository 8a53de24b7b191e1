// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/error.hpp>

#include "registration/region_maker.hpp"

namespace rdmabuf::detail {

/// The registrations of one range on one protection domain, and their results.
struct RegistrationJob {
    RegionMaker maker = {};
    RangePieces pieces = {};
    /// The index of the range, which is the same for all jobs of one range.
    std::size_t range = 0;
    /// True if no other MappingChoice remains to try on the NIC.
    bool last_mapping = false;

    // The members below are the results of the job.

    /// The region of each piece (part of the range). Empty for a piece that has failed or was
    /// skipped.
    std::vector<std::optional<AnyRegion>> regions = {};
    /// The error of the first failed piece in the order of the pieces.
    std::optional<Error> error = std::nullopt;
    /// The index of the piece that failed with `error`.
    std::size_t failed_piece = 0;

    /// Records the error of a failed piece. Does nothing if a piece with a lower index has failed.
    void fail(std::size_t piece, Error&& reason) noexcept;
    /// Returns true if `error` means that the range cannot be registered with the current
    /// registration path and exporter. run_jobs() then skips the jobs of the range that stand after
    /// this job. `error` must be set.
    [[nodiscard]] bool ends_path() const noexcept;
};

/// Runs the jobs on this thread and on other threads, which end before this function returns. On
/// one NIC, registrations begin in the order of the jobs and of their pieces. After a failure, the
/// pieces of that job that have not begun are skipped. If RegistrationJob::ends_path() is true, the
/// later jobs of the range are skipped too. The errors therefore do not depend on the scheduling of
/// the threads.
/// @param threads  see RegistrationOptions::threads
/// @throws std::bad_alloc if there was no host memory; the regions registered so far are in the
///         jobs. Errors of type Error are not thrown, but stored in the jobs
void run_jobs(std::span<RegistrationJob* const> jobs, unsigned threads);

} // namespace rdmabuf::detail
