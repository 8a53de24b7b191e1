// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <rdmabuf/error.hpp>

#include "registration/region_maker.hpp"

namespace rdmabuf::detail {

/// The registrations of one range on one protection domain, and their result.
struct RegistrationJob {
    RegionMaker maker = {};
    RangePieces pieces = {};
    /// The same number for all jobs of one range.
    std::size_t range = 0;
    /// Whether no other mapping is tried on this NIC when it refuses this one.
    bool last_mapping = false;

    // The result.

    /// The region of each piece. Not complete if `error` is set.
    std::vector<std::optional<AnyRegion>> regions = {};
    /// The error of the first piece, in the order of the pieces, that failed; and its number.
    std::optional<Error> error = std::nullopt;
    std::size_t failed_piece = 0;

    /// Records that a piece failed.
    void fail(std::size_t piece, Error&& reason) noexcept;
    /// Whether the error of this job is the end of the path for its range, so that the jobs behind
    /// it in the list of jobs need not run.
    [[nodiscard]] bool ends_path() const noexcept;
};

/// Runs one or more jobs on several threads: this thread, and threads that end before this function
/// returns. Registrations on one NIC begin in the order of the jobs and pieces. After a failure,
/// the later pieces of that job are not registered, nor the later jobs of its range if
/// RegistrationJob::ends_path(). The errors therefore do not depend on the order in which threads
/// run.
/// @param threads  as RegistrationOptions::threads
/// @throws std::bad_alloc if a thread had no memory; the regions are in the jobs
void run_jobs(std::span<RegistrationJob* const> jobs, unsigned threads);

} // namespace rdmabuf::detail
