// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// What libhl-thunk.so and libSynapse.so of this folder can be told, besides what programs say to
// theirs.
//
// They stand in for Habana's and prove what we do with a driver's answers, not what a driver
// answers. Addresses are reserved and cannot be touched by the CPU; the bytes are in memfds, which
// is what is exported, and what softverbs takes for dma-bufs. They are strict where the real ones
// may be lenient: mappings are exported from their begin on and in whole pages, and a process
// acquires one device. What is exported is a descriptor of the whole mapping.

struct FakeHabanaFaults {
    /// Exports give descriptors of one page.
    bool short_exports = false;
    /// Exported descriptors are not closed on exec.
    bool inheritable = false;
};

extern "C" {

/// Begins anew, with @p devices devices that nobody has open, Gaudi 2 all of them.
void fake_habana_reset(unsigned devices);
/// The @p nth call from now on of an exported function of either library returns @p result.
void fake_habana_fail(const char* function, unsigned nth, int result);
/// How often a function was called since the reset.
unsigned fake_habana_calls(const char* function);
unsigned fake_habana_all_calls();
void fake_habana_set_faults(const FakeHabanaFaults& faults);

/// A device that the program opens, of hlthunk_device_name @p name. @return its descriptor
int fake_habana_open(int name);
/// Memory that the program has allocated and mapped. @return where its mapping begins
std::uint64_t fake_habana_map(std::size_t size);
void fake_habana_unmap(std::uint64_t mapping);
/// How many buffers of synDeviceMalloc(), and of synHostMalloc(), there are.
unsigned fake_habana_live();
/// Whether the process has acquired a device.
bool fake_habana_acquired();
/// How much of a mapping the last export was to reach.
std::size_t fake_habana_exported();
/// Where the CPU sees the bytes of an address.
void* fake_habana_bytes(std::uint64_t address);
}
