// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/detail/unique_handle.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/unique_fd.hpp>

namespace rdmabuf {

/// A range of a dma-buf that DmaBufMR can register. The structure does not own the descriptor and
/// does not close it.
struct DmaBufRange {
    int fd = -1;
    /// The offset of the range in the dma-buf, in bytes.
    std::uint64_t offset = 0;
    /// The length of the range in bytes.
    std::size_t length = 0;
    /// The address of the range in the exporter's address space: a CPU or a device pointer, or 0 if
    /// the address is unknown.
    std::uintptr_t address = 0;
};

/// The path on which NICs access the memory of a dma-buf: PCIe or a chip-to-chip link. Each dma-buf
/// is exported for one path.
enum class MappingKind : std::uint8_t {
    /// The exporter selects the path.
    standard,
    /// NICs access the memory through the PCIe BAR of the device, even if the device has a faster
    /// path, for example NVLink-C2C of the NVIDIA GB200.
    pcie,
};

/// A range that an exporter has exported as a dma-buf. The object owns the descriptor of the
/// dma-buf. The destructor releases the descriptor as the exporter's driver requires, which is not
/// always close(2). Objects can be moved but not copied. A program exports a range once, registers
/// it on any number of protection domains, and then destroys the ExportedRange. If
/// Allocation::single_import is set, the program must export the range for each registration.
class RDMABUF_EXPORT ExportedRange {
  public:
    /// A function of the exporter that releases the descriptor passed to it. The function is called
    /// once, but not in a child process after fork(2). It must not throw.
    using Release = std::function<void(int)>;

    /// Takes ownership of @p fd. The destructor releases @p fd with close(2).
    /// @param exporter  the name of the exporter
    /// @param offset    the offset of the range in the dma-buf, in bytes
    /// @param length    in bytes
    /// @param address   the address of the range in the exporter's address space; 0 if unknown
    /// @param mapping   the mapping of the dma-buf, which determines how NICs access the memory
    ExportedRange(std::string exporter, UniqueFd fd, std::uint64_t offset, std::size_t length,
                  std::uintptr_t address, MappingKind mapping = MappingKind::standard);
    /// Takes ownership of @p fd. The destructor calls @p release with @p fd. If this constructor
    /// throws, it has already called @p release. The other parameters are those of the constructor
    /// above.
    ExportedRange(std::string exporter, int fd, Release release, std::uint64_t offset,
                  std::size_t length, std::uintptr_t address,
                  MappingKind mapping = MappingKind::standard);

    /// Converts to a DmaBufRange. The descriptor in the result is valid until this object is
    /// destroyed, so a temporary object cannot be converted.
    /* implicit */ operator DmaBufRange() const& noexcept {
        return {.fd = fd(), .offset = offset_, .length = length_, .address = address_};
    }
    operator DmaBufRange() const&& = delete;

    [[nodiscard]] int fd() const noexcept { return held_->fd.get(); }
    [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
    [[nodiscard]] std::size_t length() const noexcept { return length_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return address_; }
    /// Returns the mapping that the exporter has used. The result may be MappingKind::standard even
    /// if the program requested MappingKind::pcie: see Exporter::export_range().
    [[nodiscard]] MappingKind mapping() const noexcept { return mapping_; }
    /// Returns the name of the exporter, as Exporter::name() returns it.
    [[nodiscard]] const std::string& exporter() const noexcept { return exporter_; }

  private:
    struct Held {
        UniqueFd fd;
        Release release;
        detail::CreatorProcess creator;
        Held() = default;
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        ~Held();
    };
    static std::unique_ptr<Held> hold(UniqueFd fd, Release release);

    std::unique_ptr<Held> held_;
    std::uint64_t offset_;
    std::size_t length_;
    std::uintptr_t address_;
    MappingKind mapping_;
    std::string exporter_;
};

/// The kind of CPU access to a dma-buf. The values are DMA_BUF_SYNC_READ, _WRITE and _RW of
/// linux/dma-buf.h.
enum class CpuAccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };

/// Keeps CPU and device caches coherent while the CPU accesses a mapped dma-buf. If the memory
/// needs it, the constructor calls DMA_BUF_IOCTL_SYNC with DMA_BUF_SYNC_START, and the destructor
/// with DMA_BUF_SYNC_END and the same mode. This object is not a lock. See "CPU Access to DMA
/// Buffer Objects" in Documentation/driver-api/dma-buf.rst of Linux.
class RDMABUF_EXPORT CpuAccess {
  public:
    /// Begins the CPU access.
    /// @param dmabuf   the borrowed descriptor of the dma-buf; -1 for memory that needs no
    ///                 synchronisation
    /// @param mapping  the bytes of the dma-buf that are mapped into this process
    /// @throws Error ENOTSUP if @p mapping is empty; the errno of DMA_BUF_IOCTL_SYNC if the ioctl
    ///         fails. After EAGAIN and EINTR the constructor repeats the ioctl.
    CpuAccess(int dmabuf, std::span<std::byte> mapping, CpuAccessMode mode);
    CpuAccess(CpuAccess&& other) noexcept
        : dmabuf_(std::exchange(other.dmabuf_, -1)),
          mapping_(std::exchange(other.mapping_, {})),
          mode_(other.mode_) {}
    CpuAccess& operator=(CpuAccess&&) = delete;
    CpuAccess(const CpuAccess&) = delete;
    CpuAccess& operator=(const CpuAccess&) = delete;
    /// Ends the CPU access. If DMA_BUF_IOCTL_SYNC fails, the destructor calls the
    /// TeardownFailureHandler.
    ~CpuAccess();

    /// Returns the mapped bytes, which must not be accessed after this object is destroyed.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return mapping_; }

  private:
    int dmabuf_;
    std::span<std::byte> mapping_;
    CpuAccessMode mode_;
};

/// The kind of memory of an allocation.
enum class MemoryKind : std::uint8_t {
    /// Host memory that a kernel driver exports as a dma-buf.
    system,
    /// Memory on a GPU, an accelerator or another PCIe device.
    device,
    /// Managed memory: the driver migrates the pages between host and device. The exporters of this
    /// library do not export managed memory as a dma-buf. If the NIC and the kernel support
    /// on-demand paging, RegistrationPath::on_demand can register managed memory.
    managed,
    /// Host memory that a device driver has pinned. Another exporter may own the memory: Resolver
    /// and register_memory() then use that exporter.
    pinned_host,
};
[[nodiscard]] RDMABUF_EXPORT const char* to_string(MemoryKind kind) noexcept;

/// The allocation that contains an address, as an exporter reports it.
struct Allocation {
    /// The address of the first byte of the allocation.
    std::uintptr_t base = 0;
    /// The length of the allocation in bytes.
    std::size_t length = 0;
    /// A number that distinguishes successive allocations at the same address. A registration cache
    /// with CachePolicy::checked, and RegisteredMemory::verify(), compare the numbers to detect
    /// that an allocation was replaced. 0 if the exporter has no such number.
    std::uint64_t generation = 0;
    MemoryKind kind = MemoryKind::device;
    /// The PCI address of the device that contains the memory, for example "0000:3b:00.0". Empty if
    /// the memory is not on a PCI device, or if the exporter cannot determine the address.
    std::string pci_address = {};
    /// True if the driver reports a coherent chip-to-chip link (NVLink-C2C) between the device and
    /// its CPU. A NIC that is attached to this CPU can then access the memory over this link,
    /// without the device's PCIe link.
    bool c2c = false;
    /// True if the driver permits only one memory region for each dma-buf of the memory.
    /// register_memory() then exports the memory for each region anew.
    bool single_import = false;
};

/// Exports memory as dma-bufs: finds the allocation of an address and creates a dma-buf for this
/// allocation. Most exporters handle the memory of one driver. Exporters are thread-safe. A program
/// can derive its own exporter: docs/exporters.md has a complete example.
///
/// A registration keeps a weak reference to the exporter of its memory. A plugin that created an
/// exporter must not be unloaded before all registrations and leases of the exporter's memory are
/// destroyed: the code that releases the reference is in the plugin.
///
/// Functions that are not noexcept may throw any exception. Resolver, register_memory() and
/// RegistrationCache rethrow Error and std::bad_alloc. They convert other exceptions to Error: with
/// the errno value of a std::system_error, or with EIO if there is no errno value or the value is
/// 0.
class RDMABUF_EXPORT Exporter {
  public:
    virtual ~Exporter() = default;
    Exporter(const Exporter&) = delete;
    Exporter& operator=(const Exporter&) = delete;

    /// Returns the name of the exporter, for example "drm" or "cuda". The name is short and does
    /// not change.
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;
    /// Returns whether the exporter can be used on this machine. If the exporter cannot be used,
    /// the result contains the reason.
    [[nodiscard]] virtual Availability availability() const = 0;
    /// Returns the allocation that contains @p address, or std::nullopt if the memory does not
    /// belong to this exporter. If the result does not contain the address, the library treats the
    /// query as failed (EIO). Does not export the memory, does not load or initialise a driver, and
    /// creates no context that uses device memory: if the program does not use a driver, no memory
    /// of this process belongs to the driver.
    /// @throws Error if the driver is too old or fails, so that the owner of the memory is unknown.
    ///         The memory may then be device memory.
    [[nodiscard]] virtual std::optional<Allocation> find(std::uintptr_t address) const = 0;
    /// Returns the allocation that contains @p address, as find() does. If one dma-buf can span
    /// several mappings (CUDA virtual memory management), the result also covers the next mappings,
    /// up to the end of the @p length bytes. The result can end before the range ends. The
    /// generation of the result changes when one of these mappings is replaced. The default
    /// implementation returns find(address).
    [[nodiscard]] virtual std::optional<Allocation> find_range(std::uintptr_t address,
                                                               std::size_t length) const {
        static_cast<void>(length);
        return find(address);
    }
    /// Returns the first allocation of this exporter that contains any of the @p length bytes at @p
    /// address; std::nullopt if no such allocation is found. If an exporter finds device memory in
    /// a range, the range is not registered as host memory. The default implementation calls find()
    /// for the first and the last byte, and for the bytes between them in steps of one page or
    /// more: in at most about 16 steps up to 32 MiB, in steps of 2 MiB up to 2 TiB, and in about
    /// 2^20 steps for longer ranges. An exporter that has a table of its allocations should
    /// override the function, because the default implementation misses allocations between two
    /// steps.
    /// @throws Error for the same reasons as find()
    [[nodiscard]] virtual std::optional<Allocation> find_overlapping(std::uintptr_t address,
                                                                     std::size_t length) const;
    /// Exports the @p length bytes at @p address as a dma-buf, which the result owns.
    /// @param mapping  the requested mapping of the dma-buf. For MappingKind::standard, the
    ///                 exporter selects the mapping. If the exporter supports MappingKind::pcie but
    ///                 the machine does not, the exporter may use MappingKind::standard instead.
    ///                 The result reports the mapping that was used: see ExportedRange::mapping().
    /// @throws Error
    ///   - EFAULT: the address does not belong to this exporter
    ///   - ERANGE: the range is not inside the allocation
    ///   - EINVAL: a length of 0
    ///   - ENOTSUP: the exporter does not support MappingKind::pcie on any machine.
    ///     register_memory() then tries MappingKind::standard, unless the caller set
    ///     RegistrationOptions::mapping
    ///   - errno values of the driver
    [[nodiscard]] virtual ExportedRange export_range(
        std::uintptr_t address, std::size_t length,
        MappingKind mapping = MappingKind::standard) const = 0;

  protected:
    Exporter() = default;
};

/// Memory that an Allocator has allocated. The destructor of the Buffer frees the memory. A Buffer
/// may outlive the Allocator. Buffers can be moved but not copied.
class RDMABUF_EXPORT Buffer {
  public:
    /// The interface that an Allocator implements for the memory of one Buffer. The destructor of a
    /// Memory object must free the memory.
    class Memory {
      public:
        virtual ~Memory() = default;
        Memory(const Memory&) = delete;
        Memory& operator=(const Memory&) = delete;

        [[nodiscard]] virtual std::uintptr_t address() const noexcept = 0;
        [[nodiscard]] virtual std::size_t size() const noexcept = 0;
        /// Returns the bytes of the memory in the address space of this process. The result is
        /// empty if the memory is not mapped.
        [[nodiscard]] virtual std::span<std::byte> mapping() const noexcept = 0;
        /// Returns the descriptor of the dma-buf for DMA_BUF_IOCTL_SYNC, or -1 if CPU access needs
        /// no synchronisation. This object owns the descriptor.
        [[nodiscard]] virtual int sync_fd() const noexcept = 0;

        /// Implements Buffer::copy_in(), which calls this function only if @p source is not empty
        /// and fits at @p offset. The default implementation copies with the CPU to the mapped
        /// memory.
        virtual void copy_in(std::size_t offset, std::span<const std::byte> source);
        /// Implements Buffer::copy_out(), which calls this function only if the bytes are inside
        /// the memory. The default implementation copies with the CPU from the mapped memory.
        virtual void copy_out(std::size_t offset, std::span<std::byte> destination) const;

      protected:
        Memory() = default;
    };

    explicit Buffer(std::unique_ptr<Memory> memory) noexcept : memory_(std::move(memory)) {}

    /// Returns the address of the memory in the exporter's address space. Exporter::find(),
    /// Exporter::export_range(), Resolver and register_memory() take this address.
    [[nodiscard]] std::uintptr_t address() const noexcept { return memory_->address(); }
    /// Returns the size of the memory in bytes, which is at least the requested size.
    [[nodiscard]] std::size_t size() const noexcept { return memory_->size(); }
    /// Returns whether the memory is mapped into this process, so that the CPU can access it.
    [[nodiscard]] bool mapped() const noexcept { return !memory_->mapping().empty(); }

    /// Begins CPU access to the mapped bytes. The CPU may access the bytes in CpuAccess::bytes()
    /// until the returned object is destroyed. If the memory needs it, DMA_BUF_IOCTL_SYNC
    /// synchronises CPU and device caches at the beginning and at the end of the access. The
    /// returned object is not a lock.
    /// @throws Error ENOTSUP if the memory is not mapped; the errno of DMA_BUF_IOCTL_SYNC if the
    ///         ioctl fails
    [[nodiscard]] CpuAccess cpu_access(CpuAccessMode mode = CpuAccessMode::read_write) const {
        return {memory_->sync_fd(), memory_->mapping(), mode};
    }

    /// Copies @p source to the buffer at byte @p offset. The CPU copies through the mapping, or the
    /// device's driver copies.
    /// @throws Error
    ///   - ERANGE: the bytes are not inside the buffer
    ///   - ENOTSUP: the memory has neither a mapping nor a copy function
    ///   - other errno values of the kernel or the driver
    void copy_in(std::size_t offset, std::span<const std::byte> source) const;
    /// Copies the bytes of the buffer at byte @p offset to @p destination. The errors are those of
    /// copy_in().
    void copy_out(std::size_t offset, std::span<std::byte> destination) const;

  private:
    std::unique_ptr<Memory> memory_;
};

/// An exporter that can also allocate the memory that it exports.
class RDMABUF_EXPORT Allocator : public Exporter {
  public:
    /// Allocates memory, which the returned Buffer owns.
    /// @param size  in bytes; rounded up to whole pages or to the unit of the driver
    /// @throws Error
    ///   - EINVAL: a size of 0
    ///   - ENOMEM: there is not enough free memory
    ///   - other errno values of the kernel or the driver, for example if the driver is not
    ///     installed
    [[nodiscard]] virtual Buffer allocate(std::size_t size) = 0;
};

/// A memory range that the program has added to an exporter. The exporter can find and export the
/// range until this object is destroyed or remove() is called. Objects can be moved but not copied.
/// An object may outlive the exporter.
///
/// Removing the range has no effect on earlier exports: an ExportedRange owns its own descriptor,
/// and a region holds a kernel reference to the dma-buf. The program remains the owner of the
/// memory. Remove the range before the memory is freed or replaced. With
/// CachePolicy::explicit_invalidation, which is the default of a RegistrationCache, the program
/// must then call RegistrationCache::invalidate() for the range: otherwise the cache returns keys
/// of the old memory, also if a range with another generation is added at the same address. With
/// CachePolicy::checked, the cache detects that the range was removed or replaced.
class AddedRange {
  public:
    /// Exporters call this constructor.
    /// @param held  an object whose destructor removes the range from the exporter
    AddedRange(Allocation allocation, std::shared_ptr<const void> held) noexcept
        : allocation_(std::move(allocation)), held_(std::move(held)) {}
    AddedRange(AddedRange&&) noexcept = default;
    AddedRange& operator=(AddedRange&&) noexcept = default;
    AddedRange(const AddedRange&) = delete;
    AddedRange& operator=(const AddedRange&) = delete;
    ~AddedRange() = default;

    /// Returns the allocation of the range, as Exporter::find() reports it. Allocation::generation
    /// distinguishes successive allocations at the same address.
    [[nodiscard]] const Allocation& allocation() const noexcept { return allocation_; }
    [[nodiscard]] std::uintptr_t address() const noexcept { return allocation_.base; }
    /// Returns the length of the range in bytes.
    [[nodiscard]] std::size_t length() const noexcept { return allocation_.length; }

    /// Removes the range from the exporter. Does nothing if the range was already removed.
    /// Registrations of the range stay valid, but RegisteredMemory::verify() then marks them as
    /// revoked, because the exporter no longer knows the memory.
    void remove() noexcept { held_.reset(); }
    /// Returns true until the range is removed from the exporter by remove(). Returns false also
    /// after a move from this object.
    [[nodiscard]] bool added() const noexcept { return held_ != nullptr; }

  private:
    Allocation allocation_;
    std::shared_ptr<const void> held_;
};

} // namespace rdmabuf
