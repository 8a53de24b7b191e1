// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/protection_domain.hpp>

namespace rdmabuf::detail {

/// Why registering @p range failed with @p error, as far as can be found out afterwards: looks at
/// the descriptor, the dma-buf's size and exporter, and asks the device whether it can import at
/// all.
[[nodiscard]] std::string diagnose_dmabuf(const ProtectionDomain& pd, const DmaBufRange& range,
                                          int error);

} // namespace rdmabuf::detail
