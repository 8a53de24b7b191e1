// SPDX-License-Identifier: BSD-3-Clause
#include "beginning.hpp"

#include <exception>

namespace mpi_ring {

Beginning::Beginning(std::span<const char* const> arguments, int rank, int ranks) noexcept {
    try {
        const auto parsed = parse_options(arguments);
        if (const auto* help = std::get_if<examples::Help>(&parsed)) {
            text = help->text;
            return;
        }
        if (ranks < 2) {
            throw examples::UsageError("a ring takes two ranks or more: mpirun -n 2 mpi_ring ...");
        }
        options = std::get<Options>(parsed);
        station.emplace(options, static_cast<std::size_t>(ranks));
    } catch (const examples::UsageError& error) {
        status = exit_usage;
        text = std::string("mpi_ring: ") + error.what() + "\n(mpi_ring --help lists all options)\n";
    } catch (const std::exception& error) {
        status = exit_failure;
        text = "mpi_ring: rank " + std::to_string(rank) + ": " + error.what() + "\n";
    }
}

} // namespace mpi_ring
