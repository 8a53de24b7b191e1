// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>

#include "habana/habana_abi.hpp"

// What the fake driver of Habana has in addition to fake_driver.hpp. The fake is strict: it exports
// mappings from their start on and in whole pages, and a process acquires one device.
// fake_driver::recorded() returns the size in bytes that the last export requested; the dma-buf
// always contains the whole mapping. fake_driver::references() is 1 while the process has acquired
// a device.
namespace fake_habana {

namespace abi = rdmabuf::detail::habana;

/// Opens a device as the program. reset() closes it. @return the descriptor
int open(abi::DeviceName name);

// Functions for libSynapse.so. The machine is locked.
std::map<int, abi::DeviceName>& open_devices();
int open_device(abi::DeviceName name);
void close_device(int fd);

} // namespace fake_habana
