// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// What the driver of this folder can be told, besides what Level Zero programs say to theirs.
///
/// It stands in for a GPU's driver under the real loader, and proves what we do with a driver's
/// answers, not what a driver answers. Device addresses are reserved and cannot be touched by the
/// CPU; the bytes are in memfds, which is what is exported, and what softverbs takes for dma-bufs.
/// As Intel's driver does, it keeps the descriptor of an allocation and gives the same one to
/// everybody. It is strict where that one may be lenient: a context knows no memory but its own,
/// and what was not allocated for export is not exported.
extern "C" {

/// Begins anew, with nothing initialised or allocated, and @p gpus GPUs that export dma-bufs. The
/// contexts that there are stay.
void fake_level_zero_reset(unsigned gpus);

/// The @p nth call from now on of a function, "zeMemAllocDevice", returns @p result.
void fake_level_zero_fail(const char* function, unsigned nth, unsigned result);
/// The next call of a function is preceded by another thread, which frees the allocation at
/// @p address and, with @p again, makes one of its size there.
void fake_level_zero_free_before(const char* function, std::uint64_t address, bool again);
/// How often a function was called since the reset.
unsigned fake_level_zero_calls(const char* function);
/// How many calls of any function there were.
unsigned fake_level_zero_all_calls();

/// Every context knows the memory of all, as in Intel's driver.
void fake_level_zero_set_lenient(bool lenient);
/// What answers the export of memory that was not allocated for it: 0, and it works, as in Intel's
/// driver. UNSUPPORTED_FEATURE, unless told otherwise.
void fake_level_zero_set_undescribed(unsigned result);
/// The types of dma-buf, as a mask, that a GPU exports; 2 is the one that counts.
void fake_level_zero_set_export_types(unsigned gpu, unsigned types);
/// The type of a device: 1 is a GPU.
void fake_level_zero_set_device_type(unsigned gpu, unsigned type);
/// Exported descriptors have so many bytes less than the allocation.
void fake_level_zero_set_shortfall(std::size_t bytes);
/// What memory is allocated in, and how large a dma-buf is at least.
void fake_level_zero_set_page_size(std::size_t bytes);
/// Exported descriptors are not closed on exec.
void fake_level_zero_set_inheritable(bool inheritable);
/// Exports succeed without giving a descriptor.
void fake_level_zero_set_no_descriptor(bool none);

enum class FakeLevelZeroKind : std::uint8_t { device, host, shared };
/// An allocation of the program, in its own context. Host memory is the CPU's as well.
/// @param described  made with an export descriptor
std::uint64_t fake_level_zero_make(FakeLevelZeroKind kind, std::size_t size, unsigned gpu,
                                   bool described);
/// A pool as Intel's driver makes them, for memory that is not described: one block of
/// @p pool_size bytes, and in it at @p offset an allocation that has the id of the whole.
std::uint64_t fake_level_zero_make_pooled(std::size_t pool_size, std::size_t offset,
                                          std::size_t size);
/// Frees what fake_level_zero_make() or fake_level_zero_make_pooled() returned.
void fake_level_zero_free(std::uint64_t address);
/// How many allocations there are, and how many lists of commands.
unsigned fake_level_zero_live();

/// Where the CPU sees the bytes of a device address.
void* fake_level_zero_bytes(std::uint64_t address);
/// The context that fake_level_zero_make() allocates in.
void* fake_level_zero_program_context();
/// How many contexts there are besides that one.
unsigned fake_level_zero_contexts();
/// The descriptor that the driver keeps for an allocation; -1 when it has not been asked for.
int fake_level_zero_descriptor(std::uint64_t address);
/// Whether somebody closed one that the driver keeps.
bool fake_level_zero_descriptor_was_closed();

/// What a younger loader calls, of an IPC handle of the driver's.
unsigned fake_level_zero_put_ipc_handle(const void* handle);
unsigned fake_level_zero_descriptor_of_ipc_handle(const void* handle, std::uint64_t* fd);
/// How many IPC handles were not given back.
unsigned fake_level_zero_ipc_handles();
}
