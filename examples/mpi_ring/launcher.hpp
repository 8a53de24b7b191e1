// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <rdmabuf/transport/handle.hpp>

namespace mpi_ring {

/// MPI, which has started this process as one of several: tells them apart, and carries handles.
class Launcher {
  public:
    Launcher(int& argc, char**& argv);
    /// Waits for all other ranks to end as well.
    ~Launcher();
    Launcher(const Launcher&) = delete;
    Launcher& operator=(const Launcher&) = delete;

    [[nodiscard]] int rank() const noexcept { return rank_; }
    [[nodiscard]] int size() const noexcept { return size_; }

    /// Gives this rank's handle to all, and tells theirs, by rank. All ranks have to call it; an
    /// empty handle says that a rank has failed.
    [[nodiscard]] std::vector<rdmabuf::transport::Handle> exchange(
        const rdmabuf::transport::Handle& mine) const;

    /// Ends all ranks, and this one with @p status: for when others may be waiting for it.
    [[noreturn]] static void abort(int status);

  private:
    int rank_ = 0;
    int size_ = 0;
};

} // namespace mpi_ring
