// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rdmabuf::detail {

/// Checks what a program adds to an exporter.
/// @param described  names it in the error
/// @throws Error EINVAL for a length or an address of 0, and for an end that 64 bits cannot tell
void check_added(std::uintptr_t address, std::size_t length, const std::string& described);

} // namespace rdmabuf::detail
