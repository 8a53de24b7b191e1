// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rdmabuf/detail/export.hpp>
#include <rdmabuf/exporter.hpp>

namespace rdmabuf {

/// Finds the exporter that owns the memory at an address, in an ordered list of exporters. Copies
/// share the exporters, but an exporter that is later added to one copy is not added to the other
/// copies.
///
/// Two exporters can know one address. An ExternalExporter is queried first, because the program
/// itself declared its memory. An exporter, also an ExternalExporter, that reports
/// MemoryKind::pinned_host is used only if no exporter reports another kind of memory, because a
/// driver can pin memory of another driver. Otherwise the first exporter in the list is used.
///
/// Resolver::find(), try_find() and Exporter::find() neither load nor initialise a vendor's driver.
/// Exporter::availability(), Exporter::export_range() and Allocator::allocate() load the driver's
/// library if the program has not loaded it. availability() and allocate() can also initialise the
/// driver.
class RDMABUF_EXPORT Resolver {
  public:
    /// The exporter that owns the memory at an address, and the allocation that this exporter
    /// reports.
    struct Match {
        std::shared_ptr<Exporter> exporter;
        Allocation allocation;
    };

    Resolver() = default;
    explicit Resolver(std::vector<std::shared_ptr<Exporter>> exporters);

    /// Returns a resolver with one exporter of each type that this library was built with, also of
    /// types that are not available on this machine: Exporter::availability() returns the reason.
    /// Some exporters are not included, and the program can add() them: the exporter of memfd
    /// (providers/memfd.hpp), which only softverbs can use; exporters that need a device
    /// (providers/verbs_dm.hpp, providers/vfio.hpp) or a protection domain
    /// (providers/verbs_buf.hpp); and the exporter for memory that the program declares
    /// (providers/external.hpp). Each call creates new exporters. Keep the resolver: some
    /// exporters, such as drm and udmabuf, know only the buffers that they have allocated
    /// themselves.
    [[nodiscard]] static Resolver system();

    /// Adds @p exporter at the end of the list. An ExternalExporter is added after the last
    /// ExternalExporter, in front of all other exporters. An exporter that is being queried must
    /// not add an ExternalExporter, because the query in progress would miss it.
    /// Exporters may have the same name, but exporter() then finds the first of them only.
    /// @throws Error EINVAL for a null pointer, for an exporter with an empty name, and for an
    ///         exporter that is in the list already
    void add(std::shared_ptr<Exporter> exporter);

    /// Returns the exporter that owns the memory at @p address. Returns nullopt if no exporter owns
    /// this memory, for example for ordinary host memory.
    /// @throws Error if no exporter reports the address, and an exporter could not query its
    ///         driver. The memory could then be device memory. The errno value is that of the first
    ///         failed query; Error::hint() names the exporter and contains the cause.
    [[nodiscard]] std::optional<Match> try_find(std::uintptr_t address) const;
    /// Returns the exporter that owns the memory at @p address.
    /// @throws Error EFAULT if no exporter owns this memory; Error::hint() lists all exporters. The
    ///         other errors are those of try_find().
    [[nodiscard]] Match find(std::uintptr_t address) const;
    /// Returns the text of Error::hint() with which find() fails if no exporter owns the memory. It
    /// begins with a text such as "no exporter knows the address 0x1000, of these exporters: cuda,
    /// drm".
    [[nodiscard]] std::string describe_unknown(std::uintptr_t address) const;
    /// Finds the exporter of the memory at @p address with find(), and calls
    /// Exporter::export_range() of this exporter.
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping = MappingKind::standard) const;

    /// Returns the exporter with the name @p name.
    /// @throws Error ENOENT if there is no exporter with this name; Error::hint() lists the names
    ///         of all exporters
    [[nodiscard]] std::shared_ptr<Exporter> exporter(std::string_view name) const;
    /// Returns the allocator with the name @p name.
    /// @throws Error ENOENT if there is no exporter with this name; ENOTSUP if the exporter cannot
    ///         allocate memory
    [[nodiscard]] std::shared_ptr<Allocator> allocator(std::string_view name) const;

    /// Returns the exporters in the order of the list. The result is valid until this object is
    /// changed or destroyed.
    [[nodiscard]] std::span<const std::shared_ptr<Exporter>> exporters() const& noexcept {
        return exporters_;
    }
    void exporters() const&& = delete;

  private:
    std::vector<std::shared_ptr<Exporter>> exporters_;
};

} // namespace rdmabuf
