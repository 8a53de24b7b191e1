// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/version.hpp>

#define RDMABUF_STRINGIFY_TOKEN(token) #token
#define RDMABUF_STRINGIFY(macro) RDMABUF_STRINGIFY_TOKEN(macro)

namespace rdmabuf {

std::string_view version() noexcept {
    return RDMABUF_STRINGIFY(RDMABUF_VERSION_MAJOR) "." RDMABUF_STRINGIFY(
        RDMABUF_VERSION_MINOR) "." RDMABUF_STRINGIFY(RDMABUF_VERSION_PATCH);
}

} // namespace rdmabuf
