// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rdmabuf/error.hpp>
#include <rdmabuf/exporter.hpp>
#include <rdmabuf/registration.hpp>

#include "registration/mapping_choice.hpp"
#include "registration/registration_jobs.hpp"
#include "registration/registration_request.hpp"

namespace rdmabuf::detail {

/// Registers one memory range. Tries one registration path after the other, until one path works on
/// all protection domains. Each round of registrations has three parts: prepare() selects the
/// registrations and calls the exporter, run_jobs() executes the registrations on several threads,
/// and complete() evaluates the results. The object must not move between prepare() and complete().
class RegistrationWalk {
  public:
    /// @throws Error EINVAL if check_request() rejects the request
    explicit RegistrationWalk(const RegistrationRequest& request);

    /// Returns true if the range is registered on all protection domains.
    [[nodiscard]] bool done() const noexcept { return done_; }
    /// Adds the registrations of the next round to @p jobs. Calls exporters.
    /// @param range  the index of this range, which is stored in the jobs
    /// @throws Error if no path is left, or if the caller set RegistrationOptions::device_memory
    ///         for memory of another kind; the error text lists the attempts
    void prepare(std::size_t range, std::vector<RegistrationJob*>& jobs);
    /// Evaluates the results of the current round. Must be called after run_jobs() has run the
    /// jobs.
    void complete();
    /// Returns all regions: first all regions on the first protection domain in the order of their
    /// addresses, then all regions on the second protection domain, and so on. Must be called once,
    /// after done() has returned true.
    [[nodiscard]] std::unique_ptr<RegisteredSet> take();

  private:
    /// A protection domain, and the registrations on this protection domain.
    struct Nic {
        explicit Nic(const ProtectionDomain* p) noexcept : pd(p) {}

        const ProtectionDomain* pd;
        NicPath path{};
        /// The registrations with the current path and mapping. If `registered` is true, the job
        /// contains the regions.
        RegistrationJob job = {};
        bool registered = false;
        /// The mappings to try on this NIC for the current dma-buf path.
        MappingChoices choices = {};
    };

    /// An exporter that knows the memory.
    struct Owner {
        std::shared_ptr<Exporter> exporter;
        Allocation allocation;

        [[nodiscard]] bool is_pinned_host() const noexcept {
            return allocation.kind == MemoryKind::pinned_host;
        }
        [[nodiscard]] std::uintptr_t end() const noexcept {
            return allocation.base + allocation.length;
        }
    };

    [[nodiscard]] std::string kind() const { return to_string(set_->allocation->kind); }
    [[nodiscard]] bool listed(RegistrationPath path) const noexcept;
    [[nodiscard]] std::span<const RegistrationPath> paths() const noexcept;
    [[nodiscard]] bool is_device() const noexcept;
    [[nodiscard]] bool is_managed() const noexcept;
    /// Returns false if @p path (host or on_demand) must not be tried, because a part of the range
    /// is memory of a kind that this path does not support, or because an exporter could not be
    /// queried. Adds the reason to the trail (the list of attempts).
    [[nodiscard]] bool may_be_host(RegistrationPath path);
    /// Returns false if a NIC has no on-demand paging or cannot be queried. Adds the reason to the
    /// trail.
    [[nodiscard]] bool has_on_demand_paging();
    /// Adds @p exporter to `owners_` if it knows the memory. If the query fails, sets `unanswered_`
    /// and adds a failed attempt to the trail.
    void ask(const std::shared_ptr<Exporter>& exporter);
    /// Selects the exporter `owners_[index]`. Queries further exporters only if there is no such
    /// exporter yet, or if it reports pinned host memory: other exporters are then preferred.
    /// @return false if no further exporter knows the memory
    [[nodiscard]] bool use_owner(std::size_t index);
    /// Selects the first exporter that knows the memory.
    /// @throws Error if the caller set RegistrationOptions::device_memory and the exporter reports
    /// memory of another kind
    void find_owner();

    /// Prepares the registration path @p path.
    /// @return false if the path cannot be tried; the reason is then in the trail
    [[nodiscard]] bool open_path(RegistrationPath path);
    /// Sets the mappings to try on each NIC for the selected exporter.
    void choose_mappings_of(RegistrationPath path);
    /// Ends an attempt with the current path: deregisters all its regions and closes the dma-bufs
    /// of the range. If this is a dma-buf path and another exporter knows the memory, the path is
    /// tried again with this exporter. Otherwise the next path is tried.
    void give_up();
    /// Selects the NICs that use the same mapping in the next round of a dma-buf path, and sets
    /// their jobs. If this function returns true but selects no NIC, it has selected other
    /// mappings, and must be called again.
    /// @return false if the path cannot work on one of these NICs
    [[nodiscard]] bool choose_dmabuf_group();
    /// Selects all NICs for the next round of a path without dma-buf, and sets their jobs.
    /// @return always true, unlike choose_dmabuf_group()
    [[nodiscard]] bool choose_all();
    /// Evaluates the results of a round of a dma-buf path. For each NIC that has refused the
    /// mapping of the dma-buf, selects the mapping that is tried next.
    /// @return false if the path cannot work on at least one of the NICs: no mapping is left to
    ///     try, or another mapping would not help
    [[nodiscard]] bool complete_dmabuf(const std::vector<Nic*>& group);
    /// Evaluates the results of a round of a path without dma-buf.
    /// @return false if the registration on a NIC has failed
    [[nodiscard]] bool complete_address();

    /// Returns the range as a dma-buf. Uses the dma-buf of an earlier call that requested this
    /// mapping, or whose dma-buf has this mapping; otherwise exports the range. The exporter may
    /// have chosen another mapping: see ExportedRange::mapping().
    /// @throws Error with the errors of export_range()
    [[nodiscard]] const ExportedRange& export_for(MappingKind mapping);
    /// Returns the parts of the range. Each part is exported as its own dma-buf, because under a
    /// translating IOMMU, each import of a dma-buf maps the whole dma-buf. There are at most 64
    /// parts, so that few descriptors are open at the same time. But if the driver permits only one
    /// import of a dma-buf, each piece is a part.
    [[nodiscard]] RangePieces parts() const noexcept;
    /// Exports the parts of the range for the NICs of a group, unless the dma-buf of the range is
    /// enough. If the driver permits only one import of a dma-buf, exports each part for each NIC.
    /// @return the dma-bufs of all parts for the first NIC, then for the second NIC, and so on.
    ///         Only the dma-bufs for one NIC if all NICs share them. Empty if all pieces share the
    ///         dma-buf of the range, which is also the case after an error if the driver permits
    ///         several imports
    /// @throws Error if the driver permits only one import: the errors of export_range(), or EIO if
    ///         a part was exported with another mapping than @p mapping
    [[nodiscard]] std::vector<ExportedRange> export_parts(std::size_t nics,
                                                          MappingKind mapping) const;
    /// Exports a part of the range.
    /// @throws Error with the errno value of the exporter; EIO if the dma-buf is shorter than the
    /// part
    [[nodiscard]] ExportedRange export_range(const RangePiece& part, MappingKind mapping) const;
    /// Returns the largest offset at which a region of the range begins in its dma-buf. If parts
    /// (see parts()) have several regions each, returns instead the offset of the last region in
    /// @p range. Both values are then at least one page, and the caller tests only for that.
    /// @param range  the dma-buf of the whole range
    /// @param made   the result of export_parts()
    [[nodiscard]] std::uint64_t largest_offset(const ExportedRange& range,
                                               std::span<const ExportedRange> made) const;
    /// Checks the request and the dma-buf of the exporter before a NIC is called.
    /// @throws Error EIO if the page offset of the range in the dma-buf is neither that of the
    ///         address nor that of the iova; EINVAL if the options of the caller are not valid for
    ///         a dma-buf
    void check_exported(const ExportedRange& exported) const;
    /// Returns true if the registration on @p nic failed with EINVAL, and either the descriptor is
    /// known to be neither a dma-buf nor a memfd, or the range ends after the end of its file.
    /// Another MappingKind would not help.
    [[nodiscard]] bool has_invalid_range(const Nic& nic) const;
    /// Sets `dmabuf_refused_` if @p error is EOPNOTSUPP or 524 (ENOTSUPP of the kernel): the memory
    /// cannot be exported as a dma-buf, or a NIC cannot import the dma-buf.
    void note_refusal(int error) noexcept;
    /// Selects the next mapping of each NIC in @p group.
    /// @return false if a NIC has no further mapping
    [[nodiscard]] static bool advance_all(const std::vector<Nic*>& group, MappingOutcome outcome);
    void set_job(Nic& nic, const NicPath& path, const ExportedRange* exported);

    /// Adds an attempt to the trail and returns a reference to the attempt. The reference is valid
    /// until the next call of begin().
    [[nodiscard]] Attempt& begin(RegistrationPath path, const char* call);
    [[nodiscard]] Attempt& begin(const MappingChoice& choice, MappingKind mapping);
    [[nodiscard]] const char* function_of(RegistrationPath path) const noexcept;
    void fail_attempt(Attempt& attempt, const Error& error);
    void explain_failure(const Nic& nic, Attempt& attempt);
    /// Records in the trail that a path is not tried, and the reason.
    void refuse(RegistrationPath path, const char* call, int error, std::string meaning,
                std::string remedy = {});
    [[noreturn]] void fail() const;

    RegistrationRequest request_;
    /// The exporters that know the memory, as far as they were queried, in the order in which they
    /// are tried. Exporters that report pinned host memory are last.
    std::vector<Owner> owners_ = {};
    /// The number of exporters that were queried.
    std::size_t asked_ = 0;
    /// The index of the selected exporter in `owners_`.
    std::size_t owner_ = 0;
    /// The selected exporter; null if no exporter knows the memory. The name of the exporter and
    /// its description of the allocation are in `set_`.
    const Exporter* exporter_ = nullptr;
    /// The name of the last exporter that ask() could not query; empty if there is none.
    std::string unanswered_;
    /// The errno value of the first failed call of a driver, an exporter or verbs, or of a failed
    /// check of the arguments of such a call; 0 if none failed. Unless the memory is device memory,
    /// a call on a path without dma-buf has precedence.
    int answer_ = 0;
    /// The path of this call.
    RegistrationPath answer_path_ = RegistrationPath::dmabuf;
    std::vector<Nic> nics_ = {};
    /// The current registration path; empty before the first path, and after a path has failed
    /// until the next one begins.
    std::optional<RegistrationPath> path_ = std::nullopt;
    /// The index of the next path to try.
    std::size_t next_path_ = 0;
    /// The NICs on which the current round registers the memory: prepare() selects them, and
    /// complete() empties the list. On a dma-buf path, `choice_` is the current choice of all these
    /// NICs. They use the mapping that the exporter returned for this choice. It may differ from
    /// `choice_.mapping`, except for MappingUse::exact.
    std::vector<Nic*> group_ = {};
    MappingChoice choice_ = {};
    bool done_ = false;
    /// True if the exporter cannot export a dma-buf, or a NIC cannot import the dma-buf. The path
    /// peermem, which needs no dma-buf, may then work.
    bool dmabuf_refused_ = false;
    /// The dma-bufs of the range for the current path, indexed by the requested MappingKind. The
    /// exporter may have used another mapping.
    std::array<std::optional<ExportedRange>, 2> exports_ = {};
    /// The result of export_parts() for the current round; empty between two rounds, so that the
    /// dma-bufs are closed before other ones are exported.
    std::vector<ExportedRange> exported_parts_ = {};
    std::unique_ptr<RegisteredSet> set_;
};

/// Registers the ranges of all @p walks, one range for each walk. In each round, the registrations
/// of all walks run together on several threads.
/// @param threads  see RegistrationOptions::threads
/// @throws Error if no path works for one of the ranges
void run_walks(std::span<RegistrationWalk> walks, unsigned threads);

} // namespace rdmabuf::detail
