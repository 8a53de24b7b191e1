// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Where memory begins in a dma-buf.
struct ExportedMemory {
    UniqueFd fd;
    std::uint64_t offset = 0;
};

/// Owns the descriptor that a driver gave, and makes it close-on-exec: nothing in their interfaces
/// promises that.
/// @param raw  negative where it gave none, and said that it succeeded
/// @param call  of the driver
/// @throws Error EIO for none, what fcntl(2) says
[[nodiscard]] UniqueFd take_descriptor(int raw, const char* call);

/// @param described  the memory, for the error
/// @throws Error ERANGE when @p length bytes from the offset on leave the dma-buf
void check_holds(const ExportedMemory& exported, std::size_t length, const char* call,
                 const std::string& described);

} // namespace rdmabuf::detail
