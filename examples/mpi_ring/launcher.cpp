// SPDX-License-Identifier: BSD-3-Clause
#include "launcher.hpp"

#include <mpi.h>

#include <cstdlib>
#include <span>

namespace mpi_ring {

using rdmabuf::transport::Handle;

// MPI ends the program when one of its functions fails, unless told otherwise.

Launcher::Launcher(int& argc, char**& argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
}

Launcher::~Launcher() {
    MPI_Finalize();
}

std::vector<Handle> Launcher::exchange(const Handle& mine) const {
    constexpr int each = Handle::wire_size;
    std::vector<std::byte> bytes(static_cast<std::size_t>(size_) * Handle::wire_size);
    MPI_Allgather(mine.bytes().data(), each, MPI_BYTE, bytes.data(), each, MPI_BYTE,
                  MPI_COMM_WORLD);

    std::vector<Handle> handles(static_cast<std::size_t>(size_));
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const auto decoded = Handle::decode(std::span(bytes).subspan(i * Handle::wire_size));
        if (decoded) {
            handles[i] = *decoded;
        }
    }
    return handles;
}

void Launcher::abort(int status) {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
}

} // namespace mpi_ring
