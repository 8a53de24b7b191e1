// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf::detail {

/// Returns the size in bytes of a dma-buf, or of a file used in place of one; nothing if the
/// descriptor has no size. Moves no file's position.
[[nodiscard]] std::optional<std::uint64_t> dmabuf_size(int fd) noexcept;

/// The dma-buf of exported memory, and the offset of the memory in it.
struct ExportedMemory {
    UniqueFd fd;
    std::uint64_t offset = 0;
};

/// Takes ownership of a descriptor that a driver returned, and makes it close-on-exec, which no
/// driver's interface guarantees.
/// @param raw   the descriptor; negative if the driver succeeded without returning one
/// @param call  the function of the driver
/// @throws Error EIO for a negative descriptor, or with the errno of fcntl(2)
[[nodiscard]] UniqueFd take_descriptor(int raw, const char* call);

/// Checks that the @p length bytes at the offset lie inside the dma-buf.
/// @param described  the memory, for the text of the error
/// @throws Error ERANGE if they do not
void check_holds(const ExportedMemory& exported, std::size_t length, const char* call,
                 const std::string& described);

/// A range of addresses.
struct Extent {
    std::uintptr_t base = 0;
    std::size_t length = 0;

    /// Whether the @p bytes bytes at @p address lie inside; false if their end overflows.
    [[nodiscard]] bool holds(std::uintptr_t address, std::size_t bytes) const noexcept {
        const std::uintptr_t offset = address - base;
        return offset <= length && bytes <= length - offset;
    }
};

/// Returns the error of export_range() for a range that leaves its allocation: ERANGE, "2 bytes at
/// offset 4095 leave the buffer of 4096 bytes at 0x7f..".
/// @param why  appended to the text
[[nodiscard]] Error leaves(const Extent& extent, std::uintptr_t address, std::size_t length,
                           std::string_view why = {});

/// Checks a range of memory that a program adds to an exporter.
/// @param described  the memory, for the text of the error
/// @throws Error EINVAL for a length or an address of 0, and if the end of the range overflows
void check_added(std::uintptr_t address, std::size_t length, const std::string& described);

/// Checks the size of a buffer that a program allocates. @throws Error EINVAL for 0
void check_allocated(std::size_t size);

/// Checks the length of a range that a program exports. @throws Error EINVAL for 0
void check_exported(std::size_t length);

/// Checks the mapping of an export of memory that importers reach by one mapping only.
/// @param exporter  its name
/// @throws Error ENOTSUP for a mapping other than MappingKind::standard
void check_standard(std::string_view exporter, MappingKind mapping);

/// Throws the error of export_range() for an allocation that another thread freed during the
/// export: EFAULT.
[[noreturn]] void raise_freed(std::uintptr_t address);

} // namespace rdmabuf::detail
