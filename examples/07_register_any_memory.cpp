// SPDX-License-Identifier: BSD-3-Clause
//
// Registers memory of unknown type. Prints which registration paths were tried, and why a path
// failed. On the simulated NICs of softverbs, memory of the exporter "memfd" takes the place of
// dma-bufs. The profiles of softverbs simulate other machines:
//
//   SOFTVERBS_PROFILE=old-kernel LD_PRELOAD=.../libsoftverbs.so 07_register_any_memory
#include <algorithm>
#include <cstdio>
#include <vector>

#include <rdmabuf/providers/memfd.hpp>
#include <rdmabuf/rdmabuf.hpp>

namespace {

using rdmabuf::RegistrationPath;

// Returns true if the memory was registered by the expected path, or if the registration failed
// with the error of a recorded attempt.
bool show(const char* what, const rdmabuf::ProtectionDomain& pd, const rdmabuf::Resolver& resolver,
          std::uintptr_t address, std::size_t length, RegistrationPath expected) {
    // register_memory() writes each attempt into this record, both on success and on failure. A
    // Registration has a copy of the record, and the text of an Error contains the record.
    rdmabuf::Trail trail;
    std::printf("%s: ", what);
    try {
        const rdmabuf::Registration region = rdmabuf::register_memory(
            pd, resolver, address, length, {.access = rdmabuf::full_access, .trail = &trail});
        std::printf("%s\n", to_string(trail).c_str());
        return region.path() == expected && region.check().ok() && trail.back().worked();
    } catch (const rdmabuf::Error& error) {
        std::printf("%s\n", to_string(trail).c_str());
        return std::any_of(trail.begin(), trail.end(), [&](const rdmabuf::Attempt& attempt) {
            return attempt.error == error.error();
        });
    }
}

} // namespace

int main() try {
    const rdmabuf::ProtectionDomain pd(rdmabuf::Context::open_first());
    const auto memfd = rdmabuf::make_memfd_exporter();
    rdmabuf::Resolver resolver = rdmabuf::Resolver::system();
    resolver.add(memfd);

    const rdmabuf::Buffer buffer = memfd->allocate(1 << 20);
    const std::vector<std::byte> memory(1 << 20);
    // The program passes only an address and a length to register_memory(), both for the dma-buf
    // and for the vector.
    const bool exported =
        show("a buffer", pd, resolver, buffer.address(), buffer.size(), RegistrationPath::dmabuf);
    const bool ordinary =
        show("a vector", pd, resolver, reinterpret_cast<std::uintptr_t>(memory.data()),
             memory.size(), RegistrationPath::host);
    return exported && ordinary ? 0 : 1;
} catch (const rdmabuf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
