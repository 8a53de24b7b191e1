// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// What libcuda.so.1 of this folder can be told, besides what CUDA programs say to theirs.
///
/// It stands in for NVIDIA's driver and proves what we do with a driver's answers, not what a
/// driver answers. Device addresses are reserved and cannot be touched by the CPU; the bytes are in
/// memfds, which is what is exported, and what softverbs takes for dma-bufs. It is strict where the
/// real one may be lenient: what needs a current context fails without the right one, and what
/// needs whole pages fails without. DeviceMemory says what overlapping exports see.
///
/// FAKE_CUDA_ATTRIBUTES="124=0,18=1" sets device attributes from the environment.
extern "C" {

/// Begins anew, with nothing initialised or allocated, and @p devices devices that export dma-bufs.
void fake_cuda_reset(int devices);
/// A negative value: the driver does not know the attribute.
void fake_cuda_set_attribute(int device, int attribute, int value);

/// The @p nth call from now on of an exported function, "cuMemAlloc_v2", returns @p result.
void fake_cuda_fail(const char* function, unsigned nth, int result);
/// The next call of a function is preceded by another thread, which frees the allocation at
/// @p address and, with @p again, makes one of its size there.
void fake_cuda_free_before(const char* function, std::uint64_t address, bool again);
/// How often a function was called since the reset.
unsigned fake_cuda_calls(const char* function);
/// How many calls of any function there were.
unsigned fake_cuda_all_calls();

/// What answers an export through the BAR: 0, and it works.
void fake_cuda_set_pcie(int result);
/// Exported descriptors have so many bytes less than asked for.
void fake_cuda_set_shortfall(std::size_t bytes);
/// Exported descriptors are not closed on exec.
void fake_cuda_set_inheritable(bool inheritable);
/// Exports succeed without giving a descriptor.
void fake_cuda_set_no_descriptor(bool none);
/// Allocations are packed, 512 bytes aligned, as the real driver packs small ones.
void fake_cuda_set_packed(bool packed);

/// The driver is too old to know a pointer attribute.
void fake_cuda_forget_pointer_attribute(int attribute);

enum class FakeCudaKind : std::uint8_t { device, managed, pool, host };
/// An allocation that the program made itself, in a context of its own (pools have none). Host
/// memory is the CPU's as well.
std::uint64_t fake_cuda_make(FakeCudaKind kind, std::size_t size, int device);

struct FakeCudaMapping {
    std::size_t size;
    int device;
    /// Nothing is mapped here.
    bool hole;
    /// gpuDirectRDMACapable
    bool capable;
};
/// A reserved range with mappings, one after the other (cuMemAddressReserve, cuMemMap).
std::uint64_t fake_cuda_map(const FakeCudaMapping* mappings, unsigned count);

/// Unmaps the one mapping that begins at @p address, and maps other memory of its size there.
void fake_cuda_map_anew(std::uint64_t address);

/// Frees what fake_cuda_make() or fake_cuda_map() returned.
void fake_cuda_free(std::uint64_t address);
/// How many allocations and mappings there are.
unsigned fake_cuda_live();

/// Where the CPU sees the bytes of a device address.
void* fake_cuda_bytes(std::uint64_t address);

/// The calling thread's current context and how many are below it.
void* fake_cuda_current_context();
unsigned fake_cuda_context_depth();
/// The context that fake_cuda_make() allocates in.
void* fake_cuda_program_context(int device);
void fake_cuda_destroy_program_context(int device);
/// How often a primary context is retained.
unsigned fake_cuda_primary_references(int device);
/// What the last flush was asked for: its scope, and the context that was current.
int fake_cuda_flushed_scope();
void* fake_cuda_flushed_context();
}
