// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// A command that the program has written to /dev/infiniband/rdma_cm with write(2): the contents of
/// its header, and the address and size of its input structure.
struct Command {
    std::uint32_t number = 0;
    const std::byte* input = nullptr;
    std::size_t input_size = 0;
    std::size_t output_size = 0;
};

/// Parses the header of a command. Returns 0 or an errno: EINVAL (the buffer is too short for the
/// header and the input structure, or the command is unknown), ENOSYS (the command is not
/// implemented), ENOSPC (the response buffer is too small), EFAULT (the header cannot be read).
[[nodiscard]] int parse_command(const void* buffer, std::size_t size, Command& command);

/// Returns the errno of a planned fault (an error that a test injects) for this command. The test
/// plans it, for example, with softverbs_fail_call("rdma_connect", …). Returns 0 if none is
/// planned.
[[nodiscard]] int planned_failure(const Command& command);

/// Executes a command that the program has written to @p descriptor. Returns 0 or the errno that
/// the kernel returns. The descriptor is a socket that contains one byte for each queued event, so
/// the caller must read one byte before it executes the command GET_EVENT. If the event of this
/// byte was removed from the queue in the meantime, returns EAGAIN; the caller must then read the
/// next byte.
[[nodiscard]] int execute(int descriptor, const Command& command);

} // namespace softverbs::cm
