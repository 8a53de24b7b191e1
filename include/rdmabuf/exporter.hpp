// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/availability.hpp>
#include <rdmabuf/cpu_access.hpp>
#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exported_range.hpp>

namespace rdmabuf {

/// What kind of memory an allocation is.
enum class MemoryKind : std::uint8_t {
    /// Pages of this machine's memory that a kernel driver shares as a dma-buf.
    system,
    /// Memory of a GPU, an accelerator or another PCIe device.
    device,
    /// Memory that moves between host and device as it is used. It has no dma-buf; it can be
    /// registered with RegistrationPath::on_demand where NIC and kernel can page it.
    managed,
    /// Host memory pinned by a device's driver.
    pinned_host,
};
[[nodiscard]] RDMABUF_EXPORT const char* to_string(MemoryKind kind) noexcept;

/// What an exporter knows about an address.
struct Allocation {
    /// Address of the first byte of the allocation, and its length in bytes.
    std::uintptr_t base = 0;
    std::size_t length = 0;
    /// Differs from the generation of any allocation that was at the same address before, so that
    /// a cache can compare the two. 0 if the exporter cannot distinguish them.
    std::uint64_t generation = 0;
    MemoryKind kind = MemoryKind::device;
    /// "0000:3b:00.0" of the device that holds the memory; empty when it has none.
    std::string pci_address = {};
    /// Whether the driver reports that a coherent chip-to-chip link (NVLink-C2C) connects the
    /// device to its CPU, so that a NIC at that CPU reaches the memory without the device's PCIe
    /// link.
    bool c2c = false;
};

/// Turns addresses of one kind of memory into dma-bufs. Thread safe. A program can derive its own:
/// docs/exporters.md has a complete example.
///
/// Any exception may leave the functions that are not noexcept. Resolver, register_memory() and
/// RegistrationCache pass on Error and std::bad_alloc. They throw an Error for other exceptions:
/// with the errno of a std::system_error that has one, otherwise with EIO.
class RDMABUF_EXPORT Exporter {
  public:
    virtual ~Exporter() = default;
    Exporter(const Exporter&) = delete;
    Exporter& operator=(const Exporter&) = delete;

    /// A short fixed name: "drm", "cuda".
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    /// Whether it can work on this machine, and why not.
    [[nodiscard]] virtual Availability availability() const = 0;
    /// Returns the allocation that holds @p address, or none for memory that is not this
    /// exporter's. Exports nothing, loads no driver, initialises no driver and creates no context:
    /// a driver that the program does not use has no memory in this process.
    /// @throws Error if the exporter cannot say whose memory it is (the driver is too old, or
    ///         fails). The memory may be a device's then.
    [[nodiscard]] virtual std::optional<Allocation> find(std::uintptr_t address) const = 0;
    /// As find(), for the @p length bytes at @p address. Where one dma-buf can span several pieces
    /// of memory (mappings of CUDA virtual memory), the result covers all pieces that hold the
    /// range, and its generation changes when any of them is replaced. Other exporters return what
    /// find() returns.
    [[nodiscard]] virtual std::optional<Allocation> find_range(std::uintptr_t address,
                                                               std::size_t length) const {
        static_cast<void>(length);
        return find(address);
    }
    /// The dma-buf that holds the @p length bytes at @p address.
    /// @param mapping  one that the exporter does not have is refused with ENOTSUP, or falls back
    ///                 to standard where it depends on the machine: ExportedRange::mapping()
    /// @throws Error EFAULT for an address it does not know, ERANGE for a range that leaves the
    ///         allocation, EINVAL for a length of 0, and what the driver says.
    [[nodiscard]] virtual ExportedRange export_range(
        std::uintptr_t address, std::size_t length,
        MappingKind mapping = MappingKind::standard) const = 0;

  protected:
    Exporter() = default;
};

/// Memory made by an Allocator. Moves only; gives everything back when destroyed, and keeps alive
/// what it needs of the allocator.
class RDMABUF_EXPORT Buffer {
  public:
    /// What an allocator keeps for one buffer; its destructor gives it back.
    class Memory {
      public:
        virtual ~Memory() = default;
        Memory(const Memory&) = delete;
        Memory& operator=(const Memory&) = delete;

        [[nodiscard]] virtual std::uintptr_t address() const noexcept = 0;
        [[nodiscard]] virtual std::size_t size() const noexcept = 0;
        /// Where the CPU sees it; empty when it cannot.
        [[nodiscard]] virtual std::span<std::byte> mapping() const noexcept = 0;
        /// The dma-buf to bracket CPU access with; -1 when none is needed.
        [[nodiscard]] virtual int sync_fd() const noexcept = 0;

        /// Buffer::copy_in and copy_out, inside the memory and of more than nothing. Unless memory
        /// has a way of its own they go through the mapping, bracketed as cpu_access() does it.
        virtual void copy_in(std::size_t offset, std::span<const std::byte> source);
        virtual void copy_out(std::size_t offset, std::span<std::byte> destination) const;

      protected:
        Memory() = default;
    };

    explicit Buffer(std::unique_ptr<Memory> memory) noexcept : memory_(std::move(memory)) {}

    /// The address the exporter knows it by: pass it to Exporter::find, export_range, Resolver.
    [[nodiscard]] std::uintptr_t address() const noexcept { return memory_->address(); }
    /// In bytes: at least what was asked for.
    [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
    /// Whether the CPU can read and write it.
    [[nodiscard]] bool mapped() const noexcept { return !memory_->mapping().empty(); }

    /// The bytes, for as long as the guard lives: caches are synchronised when it is made and when
    /// it goes, as DMA_BUF_IOCTL_SYNC demands. It orders caches only and locks nothing.
    /// @throws Error ENOTSUP when the memory is not mapped, or what the ioctl says
    [[nodiscard]] CpuAccess cpu_access(CpuAccessMode mode = CpuAccessMode::read_write) const {
        return {memory_->sync_fd(), memory_->mapping(), mode};
    }

    /// Writes @p source at @p offset, in the way that this memory has: also where the CPU has no
    /// mapping of it. @throws Error ERANGE outside the buffer (with the numbers), ENOTSUP for
    /// memory without any such way, or what the kernel or the driver says
    void copy_in(std::size_t offset, std::span<const std::byte> source) const;
    /// Reads into @p destination from @p offset; as copy_in.
    void copy_out(std::size_t offset, std::span<std::byte> destination) const;

  private:
    std::unique_ptr<Memory> memory_;
};

/// An exporter that also makes memory.
class RDMABUF_EXPORT Allocator : public Exporter {
  public:
    /// @param size  in bytes; rounded up to what the memory comes in (pages)
    /// @throws Error EINVAL for 0, ENOMEM, or why the memory cannot be had here
    [[nodiscard]] virtual Buffer allocate(std::size_t size) = 0;
};

} // namespace rdmabuf
