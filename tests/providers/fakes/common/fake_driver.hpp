// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// Controls the fake driver that a test is linked with. The fake driver of each vendor exports the
/// vendor's functions and the functions of this header.
///
/// A fake driver proves how an exporter handles the results of a driver. It does not prove which
/// results the vendor's driver returns. Device addresses are reserved and the CPU cannot access
/// them. The bytes are in memfds, which are exported in place of dma-bufs. If two exported ranges
/// overlap and differ, the descriptor of the first range keeps the bytes from before the second
/// export. Where a vendor's driver may be lenient, the fake driver is strict.
namespace fake_driver {

/// Kinds of memory. Each vendor has some of them.
enum class Kind : std::uint8_t {
    device,
    /// Migrates between the CPU and the device.
    managed,
    /// Device memory of a pool of the driver, which belongs to no context.
    pooled,
    /// Host memory that the driver allocated.
    host,
    /// Mapped to a range of reserved addresses.
    mapped,
    /// CUDA: host memory of cuMemCreate() or of a pool, which belongs to no context and no device.
    host_without_device,
    /// Host memory of the program that the driver pinned; has a second address for the device.
    locked,
    graphics,
    /// Memory of another process.
    ipc,
    /// Addresses without memory.
    reserved,
};

/// Numbers that change how the driver behaves. reset() sets them to 0, or to the vendor's default.
enum class Setting : std::uint8_t {
    /// Exported descriptors are shorter than the exported range by this number of bytes.
    shortfall,
    /// Is added to the offset that an export reports, in bytes.
    displacement,
    /// Not 0: exported descriptors are not closed on exec.
    inheritable,
    /// Not 0: exports succeed and return no descriptor.
    no_descriptor,
    /// Not 0: small allocations share blocks of 2 MiB; their addresses are multiples of 512.
    packed,
    /// Not 0: the driver reports the kind and the device of memory, but not its extent.
    no_extent,
    /// The address and the size of a block are multiples of this number of bytes.
    block_alignment,
    /// Version of the driver: 2'031'024 for 2.31.24.
    version,
    /// CUDA, not 0: a stream of the program is being captured, in the mode "global".
    capturing,
    /// Result of exports of MappingKind::pcie; 0 if they succeed.
    pcie_result,
    /// Level Zero: result of exports of memory that was allocated without an export descriptor.
    undescribed_result,
    /// Level Zero, not 0: each context finds the memory of all contexts, as in Intel's driver.
    shared_contexts,
    /// Level Zero, not 0: the id of memory is its address, as in Intel's driver before 2021-09.
    addresses_as_ids,
    /// ROCm, not 0: mapped memory and host memory look like reserved addresses. Mapped memory does
    /// before HSA AMD extension 1.12, and host memory on an APU.
    mapped_as_reserved,
    /// ROCm, not 0: the driver does not report when memory is freed.
    unreported_frees,
    /// ROCm, not 0: the kernel does not export dma-bufs.
    no_dma_bufs,
    /// ROCm, not 0: GPUs have only fine-grained memory.
    fine_grained_only,
    /// ROCm, not 0: hsa_amd_pointer_info fills only the fields before the owner.
    short_pointer_info,
    /// Neuron, not 0: tensors have no address.
    no_address,
    count
};

/// Frees all memory, forgets all plans and calls, and creates @p devices devices that export
/// dma-bufs. The driver is not initialised afterwards.
void reset(unsigned devices);
void set(Setting setting, std::int64_t value);
/// Sets an attribute of a device. @param value  negative if the driver does not know the attribute
void set_attribute(unsigned device, int attribute, int value);
/// Removes support for an attribute of pointers, as in an older driver.
void forget_pointer_attribute(int attribute);

/// Plans failures: calls @p nth to @p nth + @p times - 1 of @p function from now on return
/// @p result and have no effect.
void fail(const std::string& function, int result, unsigned nth = 1, unsigned times = 1);
/// Plans that another thread frees the allocation at @p address before the next call of
/// @p function. @param again  whether that thread then allocates the same size at the same address
void free_before(const std::string& function, std::uint64_t address, bool again);
/// Returns the number of calls of @p function since reset().
unsigned calls(const std::string& function);
/// Returns the number of calls of all functions since reset().
unsigned all_calls();
/// Returns a number that the last call of @p function recorded; 0 if there is none.
std::uint64_t recorded(const std::string& function);

/// Allocates memory as the program, not as the exporter. The CPU can also access host memory.
/// @param exportable  whether the memory is allocated for export
/// @return its address
std::uint64_t make(Kind kind, std::size_t size, unsigned device = 0, bool exportable = true);
/// Returns the first address of the pages that are exported together with an allocation; 0 if no
/// allocation contains @p address.
std::uint64_t block_of(std::uint64_t address);
/// Reserves addresses. @return the first of them
std::uint64_t reserve(std::size_t size);
/// Maps memory to reserved addresses.
void place(std::uint64_t address, Kind kind, std::size_t size, unsigned device = 0,
           bool exportable = true);
/// Replaces the memory mapped at @p address by other memory of the same size.
void replace(std::uint64_t address);
/// Frees memory of make() or place().
void free(std::uint64_t address);
/// Frees memory, but the driver does not report it.
void free_unreported(std::uint64_t address);
/// Returns the number of objects of the vendor's functions that have not been freed: memory,
/// streams, command lists.
unsigned live();
/// Returns where the CPU can access the bytes of a device address.
void* bytes(std::uint64_t address);

/// Returns the number of initialisations that have not been shut down.
unsigned references();
/// Returns the number of callbacks that wait for memory to be freed.
unsigned notifiers();
/// Returns the context of the program in which make() allocates, a handle of the vendor's type.
void* program_context(unsigned device = 0);
void destroy_program_context(unsigned device);
/// Destroys the context and creates another one at the same address.
void renew_program_context(unsigned device);
/// Returns the number of references to the primary context of a device.
unsigned primary_references(unsigned device);

} // namespace fake_driver
