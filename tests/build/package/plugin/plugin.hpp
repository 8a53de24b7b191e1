// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace rdmabuf {
class Resolver;
} // namespace rdmabuf

/// An address for which the plugin's exporters throw an Error with ENODEV.
inline constexpr std::uintptr_t failing_address = 0x1000;
/// An address that the plugin's exporters know.
inline constexpr std::uintptr_t known_address = 0x2000;

extern "C" {
/// Adds an exporter "outside" and an allocator "outside_allocator".
void add_exporters(rdmabuf::Resolver* resolver);
/// Calls the function, and returns the errno of the rdmabuf::Error that it throws; 0 without an
/// exception, and -1 for another exception.
int catch_error_of(void (*function)());
}
