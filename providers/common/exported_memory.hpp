// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Returns the size in bytes of a dma-buf, or of a memfd used in place of a dma-buf. Returns
/// std::nullopt if the kernel reports no size. The file position of a memfd does not change.
[[nodiscard]] std::optional<std::uint64_t> dmabuf_size(int fd) noexcept;

/// Returns the size in bytes of a dma-buf that a driver has exported.
/// @throws Error with the errno of lseek(2) if the kernel reports no size
[[nodiscard]] std::uint64_t known_dmabuf_size(int fd);

/// Holds a dma-buf, and the offset of the exported memory in the dma-buf, in bytes.
struct ExportedMemory {
    UniqueFd fd;
    std::uint64_t offset = 0;
};

/// Takes ownership of a descriptor that a driver returned, and makes it close-on-exec, because
/// drivers do not guarantee this flag.
/// @param raw   the descriptor; negative if the driver reported success but returned no descriptor
/// @param call  the function of the driver, for the error text
/// @throws Error EIO for a negative descriptor, or with the errno of fcntl(2)
[[nodiscard]] UniqueFd take_descriptor(int raw, const char* call);

/// Checks that the dma-buf of @p exported contains the @p length bytes that begin at the offset
/// `exported.offset`. Succeeds if the size of the dma-buf is unknown.
/// @param call       function of the driver, for the error text
/// @param described  the memory, for the error text
/// @throws Error ERANGE if the dma-buf is too short
void check_holds(const ExportedMemory& exported, std::size_t length, const char* call,
                 const std::string& described);

/// Describes a range of addresses by its start and its length in bytes.
struct Extent {
    std::uintptr_t base = 0;
    std::size_t length = 0;

    /// Returns true if this range contains @p bytes bytes at @p address. Returns false if the end
    /// of these bytes exceeds the address space.
    [[nodiscard]] bool holds(std::uintptr_t address, std::size_t bytes) const noexcept {
        const std::uintptr_t offset = address - base;
        return offset <= length && bytes <= length - offset;
    }
};

/// Returns the error ERANGE of export_range() for a range that exceeds its allocation, for example
/// "2 bytes at offset 4095 leave the buffer of 4096 bytes at 0x7f..".
/// @param why  a text that is appended to the error text
[[nodiscard]] Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
                           std::string_view why = {});

/// Checks the address and the length of memory that a program adds to an exporter.
/// @param described  the memory, for the error text
/// @throws Error EINVAL if the length or the address is 0, or if the end of the memory exceeds the
///         address space
void check_added(std::uintptr_t address, std::size_t length, const std::string& described);

/// Checks the size in bytes of a buffer to allocate. @throws Error EINVAL if the size is 0
void check_allocated(std::size_t size);

/// Checks the length in bytes of a range to export. @throws Error EINVAL if the length is 0
void check_exported(std::size_t length);

/// Checks the mapping of an export, for memory that supports only MappingKind::standard.
/// @param exporter  name of the exporter, for the error text
/// @throws Error ENOTSUP for another mapping
void check_standard(std::string_view exporter, MappingKind mapping);

/// Throws the error EFAULT of export_range() for an allocation that another thread freed during the
/// export.
[[noreturn]] void raise_freed(std::uintptr_t address);

/// Exports memory with @p make. Calls raise_freed() if another thread has freed the memory during
/// the export. In this case, the dma-buf may be that of other memory, or the error of the driver
/// may be misleading.
/// @param is_same  queries the driver again, and returns true if the memory at @p address still
///                 belongs to the allocation that it belonged to before the export. Throws EFAULT
///                 if @p address is in no allocation
template <class IsSame, class Make>
[[nodiscard]] ExportedRange export_unless_freed(std::uintptr_t address, const IsSame& is_same,
                                                const Make& make) {
    const auto check = [&] {
        if (!is_same()) {
            raise_freed(address);
        }
    };
    std::optional<ExportedRange> made;
    try {
        made.emplace(make());
    } catch (const Error&) {
        check();
        throw;
    }
    check();
    return *std::move(made);
}

/// Returns the allocation of an address for Exporter::find(). If another thread frees the memory
/// during the query, queries again, because other memory of the driver may then be at the address.
/// @param look_up   returns what the driver reports about the address, with a member `id` that
///                  differs for each allocation; std::nullopt for memory that is not the driver's
/// @param describe  converts a result of @p look_up to an Allocation. Throws an Error if the driver
///                  fails, for example because the memory was freed
/// @throws the Error of @p describe, if the memory was not freed
template <class LookUp, class Describe>
[[nodiscard]] std::optional<Allocation> find_allocation(const LookUp& look_up,
                                                        const Describe& describe) {
    auto pointer = look_up();
    while (pointer) {
        try {
            return describe(*pointer);
        } catch (const Error&) {
            auto now = look_up();
            if (now && now->id == pointer->id) {
                throw;
            }
            pointer = now;
        }
    }
    return std::nullopt;
}

} // namespace rdmabuf::detail
