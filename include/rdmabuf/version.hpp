// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include <rdmabuf/detail/export.hpp>

/// The version of these headers. CMakeLists.txt reads it from here; it stands nowhere else.
#define RDMABUF_VERSION_MAJOR 0
#define RDMABUF_VERSION_MINOR 1
#define RDMABUF_VERSION_PATCH 0

namespace rdmabuf {

/// The version of the library that is linked, as "major.minor.patch". With the shared library it
/// can be newer than the headers the program was compiled against, which RDMABUF_VERSION_* give.
[[nodiscard]] RDMABUF_EXPORT std::string_view version() noexcept;

} // namespace rdmabuf
