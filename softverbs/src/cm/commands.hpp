// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

namespace softverbs::cm {

/// The header of a command that the program passed to write(2), and the address and size of the
/// input that follows it.
struct Command {
    std::uint32_t number = 0;
    const std::byte* input = nullptr;
    std::size_t input_size = 0;
    std::size_t output_size = 0;
};

/// Reads the header of a command. Returns 0, or EINVAL (too short, or an unknown command), ENOSYS,
/// EFAULT.
[[nodiscard]] int parse_command(const void* buffer, std::size_t size, Command& command);

/// Returns the errno of a fault that is planned for this command, for example by
/// softverbs_fail_call("rdma_connect", …). Returns 0 if the command must be executed.
[[nodiscard]] int planned_failure(const Command& command);

/// Executes a command on the file behind @p descriptor. Returns 0 or the errno of the kernel's
/// ucma. Before GET_EVENT, the caller reads the byte of one event from the descriptor. EAGAIN then
/// means that this event was removed, and that the caller must read again.
[[nodiscard]] int execute(int descriptor, const Command& command);

} // namespace softverbs::cm
