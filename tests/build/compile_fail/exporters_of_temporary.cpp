// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/resolver.hpp>

// The loop would read the list of a resolver that is already destroyed.
void print_names() {
#ifdef MUST_COMPILE
    const rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    for (const auto& exporter : resolver.exporters()) {
#else
    for (const auto& exporter : rdmabuf::Resolver::system().exporters()) {
#endif
        static_cast<void>(exporter->name());
    }
}
