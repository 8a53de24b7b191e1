// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/region.hpp>

// What a peer sent may be anything.
rdmabuf::RemoteRegion region_of(std::span<const std::byte> bytes) {
#ifdef MUST_COMPILE
    return rdmabuf::RemoteRegion::decode(bytes).value();
#else
    return rdmabuf::RemoteRegion::decode(bytes);
#endif
}
