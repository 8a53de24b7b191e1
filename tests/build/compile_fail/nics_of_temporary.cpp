// SPDX-License-Identifier: BSD-3-Clause
#include <rdmabuf/topology.hpp>

// The loop would read the list of a topology that is already destroyed.
void print_names() {
#ifdef MUST_COMPILE
    const rdmabuf::Topology topology = rdmabuf::Topology::read();
    for (const rdmabuf::Nic& nic : topology.nics()) {
#else
    for (const rdmabuf::Nic& nic : rdmabuf::Topology::read().nics()) {
#endif
        static_cast<void>(nic.name);
    }
}
