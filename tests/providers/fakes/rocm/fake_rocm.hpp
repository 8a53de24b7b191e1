// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// What libhsa-runtime64.so.1 of this folder can be told, besides what HSA programs say to theirs.
///
/// It stands in for AMD's runtime and proves what we do with a driver's answers, not what a driver
/// answers. Device addresses are reserved and cannot be touched by the CPU; the bytes are in
/// memfds, which is what is exported, and what softverbs takes for dma-bufs. A dma-buf holds a
/// whole block of the driver's, of which an allocation may be a part. It is strict where the real
/// one may be lenient: ranges end where the allocation does, a pointer's information wants its
/// size, and a runtime that is not initialised closes nothing. What takes the real one down ends
/// the program here too.
extern "C" {

/// Begins anew, with nothing initialised or allocated, and @p gpus GPUs that export dma-bufs.
void fake_rocm_reset(int gpus);

/// The @p nth call from now on of a function, "hsa_init", returns @p status.
void fake_rocm_fail(const char* function, unsigned nth, int status);
/// The next call of a function is preceded by another thread, which frees the allocation at
/// @p address and, with @p again, makes one of its size there.
void fake_rocm_free_before(const char* function, std::uint64_t address, bool again);
/// How often a function was called since the reset.
unsigned fake_rocm_calls(const char* function);
/// How many calls of any function there were.
unsigned fake_rocm_all_calls();

/// What hsa_system_get_info says of dma-bufs.
void fake_rocm_set_dmabufs(bool supported);
/// What answers an export through the BAR: 0, and it works.
void fake_rocm_set_pcie(int status);
/// Exported descriptors have so many bytes less than the block.
void fake_rocm_set_shortfall(std::size_t bytes);
/// Added to the offset of what is exported.
void fake_rocm_set_displacement(std::uint64_t bytes);
/// Exported descriptors are not closed on exec.
void fake_rocm_set_inheritable(bool inheritable);
/// Exports succeed without giving a descriptor.
void fake_rocm_set_no_descriptor(bool none);
/// Allocations are packed into blocks, 512 bytes aligned.
void fake_rocm_set_packed(bool packed);
/// Allocations tell nobody when they are freed.
void fake_rocm_set_mute(bool mute);
/// GPUs have only memory that is shared in small grains.
void fake_rocm_set_fine_only(bool fine);
/// hsa_amd_pointer_info knows no more than its first fields, those before the owner.
void fake_rocm_set_short_info(bool is_short);

enum class FakeRocmKind : std::uint8_t {
    device,
    /// Of a pool of the CPU's.
    host,
    /// The program's, pinned; has another address for the device.
    locked,
    graphics,
    ipc,
    /// Addresses without memory.
    reserved,
    /// Mapped to reserved addresses (hipMemMap).
    mapped,
};
/// An allocation that the program made itself.
std::uint64_t fake_rocm_make(FakeRocmKind kind, std::size_t size, int gpu);
/// Frees it, as hsa_amd_memory_pool_free does.
void fake_rocm_free(std::uint64_t address);
/// Frees it without a word to those who want to know.
void fake_rocm_lose(std::uint64_t address);
/// How many allocations there are.
unsigned fake_rocm_live();

/// How often HSA is initialised without having been shut down.
unsigned fake_rocm_references();
/// How many notifications of deallocations are asked for.
unsigned fake_rocm_watched();
/// How many exported descriptors have not gone back.
unsigned fake_rocm_open_exports();

/// Where the CPU sees the bytes of a device address.
void* fake_rocm_bytes(std::uint64_t address);
}
