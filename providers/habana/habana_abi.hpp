// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

/// Declares the part of Habana's libhl-thunk.so that rdmabuf uses, so that the build does not need
/// the library. The values are those of <hlthunk.h>. Where this header is installed,
/// tests/build/abi/habana.cpp checks that the values agree.
namespace rdmabuf::detail::habana {

/// hlthunk_device_name
enum class DeviceName : int { goya = 0, gaudi = 2, invalid = 3, gaudi2 = 5, gaudi_hl2000m = 6 };

using GetDeviceName = DeviceName(int fd);
using GetPciBusId = int(int fd, char* text, int length);
using OpenControl = int(int index, const char* pci_bus_id);
using Close = int(int fd);
/// The function returns a descriptor, or the negated errno value.
using ExportMappedMemory = int(int fd, std::uint64_t mapping, std::uint64_t size,
                               std::uint64_t offset, std::uint32_t flags);

} // namespace rdmabuf::detail::habana
