// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include <rdmabuf/detail/export.hpp>

/// The version of these headers. CMakeLists.txt reads the version number from this file.
#define RDMABUF_VERSION_MAJOR 0
#define RDMABUF_VERSION_MINOR 1
#define RDMABUF_VERSION_PATCH 0

namespace rdmabuf {

/// Returns the version of the linked library as "major.minor.patch". A shared library can be newer
/// than the headers with which the program was compiled; RDMABUF_VERSION_* is the version of the
/// headers.
[[nodiscard]] RDMABUF_EXPORT std::string_view version() noexcept;

} // namespace rdmabuf
