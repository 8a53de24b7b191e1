// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace rdmabuf::detail {

/// In quotation marks, fit for a message: what does not print is escaped, what is long is cut.
[[nodiscard]] std::string quote(std::string_view text);

} // namespace rdmabuf::detail
