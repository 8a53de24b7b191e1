// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// What libnrt.so.1 of this folder can be told, besides what programs say to theirs.
//
// It stands in for the Neuron runtime and proves what we do with a runtime's answers, not what a
// runtime answers. Addresses are reserved and cannot be touched by the CPU; the bytes are in
// memfds, which is what is exported, and what softverbs takes for dma-bufs. It is strict where the
// real one may be lenient: it is initialised once, and the older call for dma-bufs takes the first
// address of a tensor only. DeviceMemory says what overlapping exports see.

struct FakeNeuronFaults {
    /// Exported descriptors have so many bytes less than asked for.
    std::size_t shortfall = 0;
    /// The newer call says that memory is so many bytes further in than it is.
    std::uint64_t offset_error = 0;
    /// Exported descriptors are not closed on exec.
    bool inheritable = false;
    /// Exports succeed without giving a descriptor.
    bool no_descriptor = false;
    /// Tensors have no address.
    bool no_address = false;
};

extern "C" {

/// Begins anew, with nothing initialised or allocated, and @p cores NeuronCores.
void fake_neuron_reset(unsigned cores);
/// The @p nth call from now on of an exported function returns @p status.
void fake_neuron_fail(const char* function, unsigned nth, int status);
/// How often a function was called since the reset.
unsigned fake_neuron_calls(const char* function);
unsigned fake_neuron_all_calls();

void fake_neuron_set_version(unsigned major, unsigned minor, unsigned patch);
void fake_neuron_set_faults(const FakeNeuronFaults& faults);

/// A tensor that the program made itself, having initialised the runtime. @return its address
std::uint64_t fake_neuron_make(std::size_t size);
void fake_neuron_free(std::uint64_t address);
/// How many tensors there are.
unsigned fake_neuron_live();
/// Where the CPU sees the bytes of an address.
void* fake_neuron_bytes(std::uint64_t address);
}
