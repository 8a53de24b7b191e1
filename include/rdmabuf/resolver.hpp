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

/// Finds out whose memory an address is, with an ordered set of exporters. Copies share the
/// exporters.
///
/// Finding an owner initialises nothing: find(), try_find() and Exporter::find() neither load nor
/// initialise a vendor's driver. Exporter::availability(), Exporter::export_range() and
/// Allocator::allocate() load the driver's library if the program has not, and availability() and
/// allocate() also initialise the driver.
class RDMABUF_EXPORT Resolver {
  public:
    /// An exporter that knows the address, and what it knows.
    struct Match {
        std::shared_ptr<Exporter> exporter;
        Allocation allocation;
    };

    Resolver() = default;
    explicit Resolver(std::vector<std::shared_ptr<Exporter>> exporters);

    /// One of each exporter this library was built with, available here or not: an exporter that is
    /// not says why when asked. Without the stand-in of providers/memfd.hpp, which only softverbs
    /// can use, and without those that need something of the program: a device
    /// (providers/verbs_dm.hpp, providers/vfio.hpp), a protection domain
    /// (providers/verbs_buf.hpp), or to be told of memory (providers/external.hpp). add() those.
    /// Every call makes new ones: keep it, a buffer is known only to the allocator that made it.
    [[nodiscard]] static Resolver system();

    /// Asks @p exporter after all others.
    void add(std::shared_ptr<Exporter> exporter);

    /// Returns the first exporter that knows @p address, or none for memory that belongs to no
    /// exporter, as ordinary host memory.
    /// @throws Error if no exporter knows the address and one of them could not answer: then the
    ///         memory may be a device's. errno and reason are those of that exporter.
    [[nodiscard]] std::optional<Match> try_find(std::uintptr_t address) const;
    /// As try_find(). @throws Error EFAULT when no exporter knows the address; the hint names all
    ///         exporters
    [[nodiscard]] Match find(std::uintptr_t address) const;
    /// "no exporter knows the address 0x1000, of these exporters: cuda, drm": the hint of find().
    [[nodiscard]] std::string describe_unknown(std::uintptr_t address) const;
    /// find(), then export_range() of the exporter found.
    [[nodiscard]] ExportedRange export_range(std::uintptr_t address, std::size_t length,
                                             MappingKind mapping = MappingKind::standard) const;

    /// The exporter of that name. @throws Error ENOENT: the hint lists the names there are.
    [[nodiscard]] const std::shared_ptr<Exporter>& exporter(std::string_view name) const;
    /// The allocator of that name. @throws Error ENOENT as above, or ENOTSUP for an exporter that
    /// makes no memory.
    [[nodiscard]] std::shared_ptr<Allocator> allocator(std::string_view name) const;

    [[nodiscard]] std::span<const std::shared_ptr<Exporter>> exporters() const noexcept {
        return exporters_;
    }

  private:
    std::vector<std::shared_ptr<Exporter>> exporters_;
};

} // namespace rdmabuf
