// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "habana/habana_abi.hpp"

// What the fake driver of Habana has in addition to fake_driver.hpp. The fake is strict: it exports
// mappings from their start on and in whole pages. fake_driver::recorded() returns the size in
// bytes that the last export requested; the dma-buf always contains the whole mapping.
namespace fake_habana {

namespace abi = rdmabuf::detail::habana;

/// Opens a device as the program. reset() closes it. @return the descriptor, -1 if there is no
/// device
int open(abi::DeviceName name);

} // namespace fake_habana
