// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/region.hpp>
#include <rdmabuf/resolver.hpp>

// A DmaBufRange does not own its descriptor, which a temporary ExportedRange would close.
rdmabuf::DmaBufMR register_range(const rdmabuf::ProtectionDomain& pd,
                                 const rdmabuf::Resolver& resolver, std::uintptr_t address) {
#ifdef MUST_COMPILE
    return {pd, resolver.export_range(address, 1)};
#else
    const rdmabuf::DmaBufRange range = resolver.export_range(address, 1);
    return {pd, range};
#endif
}
