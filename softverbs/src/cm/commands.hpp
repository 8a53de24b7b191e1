// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// The header of a command that write(2) passed, and the place of what follows it.
struct Command {
    std::uint32_t number = 0;
    const std::byte* input = nullptr;
    std::size_t input_size = 0;
    std::size_t output_size = 0;
};

/// Reads the header. 0, or EINVAL (too short, or an unknown command), ENOSYS, EFAULT.
[[nodiscard]] int parse_command(const void* buffer, std::size_t size, Command& command);

/// The errno that a planned fault (softverbs_fail_call("rdma_connect", …)) gives this command; 0:
/// it is executed.
[[nodiscard]] int planned_failure(const Command& command);

/// Executes a command on the file behind @p descriptor. 0, or the errno of the kernel's ucma. The
/// caller of GET_EVENT has read the byte of an event before; EAGAIN means that the event is gone,
/// and that the caller has to wait for the next one.
[[nodiscard]] int execute(int descriptor, const Command& command);

} // namespace softverbs::cm
