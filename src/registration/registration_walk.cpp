// SPDX-License-Identifier: BSD-3-Clause
#include "registration/registration_walk.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <rdmabuf/detail/check.hpp>

#include "base/address_space.hpp"
#include "base/text.hpp"
#include "device/sysfs.hpp"
#include "memory/checks.hpp"
#include "memory/dmabuf_diagnosis.hpp"
#include "memory/exporter_calls.hpp"
#include "registration/registration_hints.hpp"

namespace rdmabuf::detail {
namespace {

using enum RegistrationPath;

constexpr std::array default_paths{dmabuf, host};
/// The maximum number of parts of a range that are exported at the same time. Does not apply if
/// Allocation::single_import is set.
constexpr std::size_t most_exported_parts = 64;
/// The default registration paths if the caller sets RegistrationOptions::device_memory.
constexpr std::array default_device_paths{dmabuf};
/// The default registration paths for managed memory, which migrates and therefore cannot be
/// pinned.
constexpr std::array default_managed_paths{dmabuf, on_demand};

/// Attempt::meaning of an attempt with RegistrationPath::dmabuf or
/// RegistrationPath::dmabuf_data_direct, for memory that no exporter knows. The text is so short
/// that std::string needs no allocation.
constexpr const char* unknown_memory = "unknown memory";

} // namespace

RegistrationWalk::RegistrationWalk(const RegistrationRequest& request)
    : request_(request), set_(std::make_unique<RegisteredSet>()) {
    check_request(request);
    nics_.reserve(request.pds.size());
    for (const ProtectionDomain& pd : request.pds) {
        nics_.emplace_back(&pd);
    }
    set_->address = request.address;
    set_->length = request.length;
    set_->iova = request.iova();
    set_->access = request.access();
}

void RegistrationWalk::prepare(std::size_t range, std::vector<RegistrationJob*>& jobs) {
    if (next_path_ == 0) {
        find_owner();
    }
    while (group_.empty()) {
        if (!path_) {
            if (next_path_ == paths().size()) {
                fail();
            }
            const RegistrationPath path = paths()[next_path_++];
            if (open_path(path)) {
                path_ = path;
            }
        } else if (!(is_dmabuf(*path_) ? choose_dmabuf_group() : choose_all())) {
            give_up();
        }
    }
    for (Nic* const nic : group_) {
        nic->job.range = range;
        jobs.push_back(&nic->job);
    }
}

void RegistrationWalk::complete() {
    const std::vector<Nic*> group = std::exchange(group_, {});
    exported_parts_.clear();
    if (!(is_dmabuf(*path_) ? complete_dmabuf(group) : complete_address())) {
        give_up();
        return;
    }
    done_ = std::ranges::all_of(nics_, &Nic::registered);
    if (done_) {
        exports_ = {};
    }
}

std::unique_ptr<RegisteredSet> RegistrationWalk::take() {
    std::size_t pieces = 0;
    for (const Nic& nic : nics_) {
        pieces += nic.job.regions.size();
    }
    set_->nics.reserve(nics_.size());
    set_->regions.reserve(pieces);
    for (Nic& nic : nics_) {
        set_->nics.push_back(nic.path);
        for (std::optional<AnyRegion>& region : nic.job.regions) {
            set_->regions.push_back(*std::move(region));
        }
    }
    return std::move(set_);
}

std::span<const RegistrationPath> RegistrationWalk::paths() const noexcept {
    if (!request_.options.paths.empty()) {
        return request_.options.paths.paths();
    }
    if (request_.options.device_memory) {
        return default_device_paths;
    }
    return is_managed() ? std::span<const RegistrationPath>(default_managed_paths)
                        : std::span<const RegistrationPath>(default_paths);
}

bool RegistrationWalk::listed(RegistrationPath path) const noexcept {
    return std::ranges::find(paths(), path) != paths().end();
}

void RegistrationWalk::ask(const std::shared_ptr<Exporter>& exporter) {
    try {
        if (auto found = detail::find_range(*exporter, request_.address, request_.length)) {
            // Exporters of pinned host memory come last: a driver can pin memory of another driver.
            const auto pinned = std::ranges::find_if(owners_, &Owner::is_pinned_host);
            const bool last = found->kind == MemoryKind::pinned_host;
            owners_.insert(last ? owners_.end() : pinned,
                           {.exporter = exporter, .allocation = *std::move(found)});
        }
    } catch (const Error& error) {
        // This exporter could not be queried. The search continues, because another exporter may
        // find the memory. But may_be_host() then refuses to register the memory as host memory,
        // because it may belong to this exporter.
        unanswered_ = exporter->name();
        Attempt& attempt = begin(path_.value_or(paths().front()), error.function());
        fail_attempt(attempt, error);
        attempt.exporter = unanswered_;
        attempt.meaning = "the exporter cannot determine if it owns this memory: " + error.hint();
    }
}

bool RegistrationWalk::use_owner(std::size_t index) {
    while (asked_ < request_.resolver.exporters().size() &&
           (index >= owners_.size() || owners_[index].is_pinned_host())) {
        // Copy the pointer, because the query may add an exporter to the list.
        const std::shared_ptr<Exporter> exporter = request_.resolver.exporters()[asked_++];
        ask(exporter);
    }
    if (index >= owners_.size()) {
        return false;
    }
    const Owner& owner = owners_[index];
    owner_ = index;
    exporter_ = owner.exporter.get();
    set_->exporter = exporter_->name();
    set_->source = owner.exporter;
    set_->allocation = owner.allocation;
    return true;
}

void RegistrationWalk::find_owner() {
    if (use_owner(0) && request_.options.device_memory && !is_device()) {
        refuse(paths().front(), request_.function, EFAULT,
               "device_memory is set, but this is " + kind() + " memory",
               "check the pointer, or do not set device_memory");
        fail();
    }
}

bool RegistrationWalk::is_device() const noexcept {
    return !owners_.empty() && owners_.front().allocation.kind == MemoryKind::device;
}

bool RegistrationWalk::is_managed() const noexcept {
    return !owners_.empty() && owners_.front().allocation.kind == MemoryKind::managed;
}

bool RegistrationWalk::open_path(RegistrationPath path) {
    static_cast<void>(use_owner(0));
    if (is_dmabuf(path)) {
        if (exporter_ == nullptr) {
            if (request_.options.device_memory) {
                refuse(path, "find", EFAULT, "no exporter reports this as device memory",
                       "check the pointer, or do not set device_memory");
            } else {
                // Each registration of host memory with the default paths records this attempt, so
                // the text is short.
                refuse(path, "find", EFAULT, unknown_memory);
            }
            return false;
        }
        choose_mappings_of(path);
        return true;
    }
    const bool needs_device =
        path == peermem || (path == on_demand && request_.options.device_memory);
    if (needs_device && !is_device()) {
        refuse(path, request_.function, EFAULT,
               exporter_ != nullptr ? "this is " + kind() + " memory, not device memory"
                                    : "no exporter reports this as device memory");
        return false;
    }
    if (path == peermem && owners_.front().end() - request_.address < request_.length) {
        refuse(path, request_.function, ERANGE,
               "only the first " + std::to_string(owners_.front().end() - request_.address) +
                   " bytes are in the allocation",
               "register each allocation on its own");
        return false;
    }
    if (path == on_demand) {
        // check_request() rejects a DMA handle if the caller lists on_demand.
        if (request_.options.dma_handle != nullptr) {
            refuse(path, request_.function, EINVAL, "on_demand does not support a DMA handle");
            return false;
        }
        return may_be_host(path) && has_on_demand_paging();
    }
    return path != host || may_be_host(path);
}

void RegistrationWalk::choose_mappings_of(RegistrationPath path) {
    const RegistrationPath other = path == dmabuf ? dmabuf_data_direct : dmabuf;
    for (Nic& nic : nics_) {
        nic.choices = MappingChoices(choose_mappings(
            *set_->allocation, nic.pd->context(),
            {.options = request_.options, .path = path, .other_is_listed = listed(other)}));
    }
}

void RegistrationWalk::give_up() {
    for (Nic& nic : nics_) {
        nic.job.regions.clear();
        nic.registered = false;
    }
    exports_ = {};
    if (is_dmabuf(*path_) && use_owner(owner_ + 1)) {
        choose_mappings_of(*path_);
    } else {
        path_.reset();
    }
}

bool RegistrationWalk::choose_dmabuf_group() {
    const auto open = std::ranges::find(nics_, false, &Nic::registered);
    choice_ = open->choices.current();
    std::vector<Nic*> group;
    for (Nic& nic : nics_) {
        if (!nic.registered && nic.choices.current() == choice_) {
            group.push_back(&nic);
        }
    }
    if (choice_.path == dmabuf_data_direct) {
        if (Availability there = data_direct_function(); !there) {
            Attempt& attempt = begin(choice_, choice_.mapping);
            attempt.error = ENOSYS;
            attempt.meaning = std::move(there.reason);
            attempt.remedy = std::move(there.remedy);
            return advance_all(group, MappingOutcome::refused);
        }
    }
    const ExportedRange* range = nullptr;
    std::vector<ExportedRange> made;
    try {
        range = &export_for(choice_.mapping);
        made = export_parts(group.size(), range->mapping());
    } catch (const Error& error) {
        note_refusal(choice_.mapping == MappingKind::standard ? error.error() : 0);
        // Do not record that the exporter has no second mapping, if that mapping was tried only
        // because the NIC refused the standard one. Most exporters have one mapping, and the
        // missing second one is not the cause of the failure.
        if (error.error() != ENOTSUP || choice_.reason != after_refusal) {
            fail_attempt(begin(choice_, choice_.mapping), error);
        }
        return advance_all(group, MappingOutcome::not_exported);
    }
    try {
        check_exported(*range);
    } catch (const Error& error) {
        // No other mapping is tried, because the arguments or the exporter are wrong.
        fail_attempt(begin(choice_, range->mapping()), error);
        return false;
    }
    if (choice_.use == MappingUse::exact && range->mapping() != choice_.mapping) {
        return advance_all(group, MappingOutcome::not_exported);
    }
    if (choice_.path == dmabuf_data_direct) {
        if (const std::uint64_t offset = largest_offset(*range, made); offset >= page_size()) {
            // Data direct is not tried for a region that begins after the first page of its
            // dma-buf: one report says that data direct then fails (torchcomms issue 3027), and UCX
            // registers only from the first byte.
            Attempt& attempt = begin(choice_, range->mapping());
            attempt.error = EOPNOTSUPP;
            attempt.meaning = "a region begins at byte " + std::to_string(offset) +
                              " of the dma-buf, and data direct needs its first page";
            return advance_all(group, MappingOutcome::refused);
        }
    }
    exported_parts_ = std::move(made);
    std::span<const ExportedRange> exported = exported_parts_;
    const RangePieces parts = this->parts();
    for (Nic* const nic : group) {
        set_job(*nic, {.path = choice_.path, .mapping = range->mapping()}, range);
        nic->job.last_mapping = !nic->choices.has_next(MappingOutcome::refused);
        const std::size_t count = exported.empty() ? 0 : parts.count();
        nic->job.maker.exported_parts = exported.first(count);
        nic->job.maker.parts = parts;
        if (set_->allocation->single_import) {
            exported = exported.subspan(count);
        }
    }
    group_ = std::move(group);
    return true;
}

void RegistrationWalk::check_exported(const ExportedRange& exported) const {
    const auto page = std::uint64_t{page_size()};
    const std::uint64_t inside = exported.offset() % page;
    // The page offset of the exported range in the dma-buf must be that of the address or that of
    // the iova; otherwise the exporter is wrong. If only the page offset of the iova differs, the
    // caller is wrong: check_dmabuf() below reports this.
    if (inside != request_.address % page && inside != set_->iova % page) {
        throw Error(EIO, "export_range",
                    "export_range() of '" + set_->exporter + "' returned offset " +
                        std::to_string(exported.offset()) +
                        ", whose page offset is not that of the address " +
                        hexadecimal(request_.address) + " (a page has " + std::to_string(page) +
                        " bytes): correct the exporter");
    }
    const DmaBufRange range{.fd = exported.fd(),
                            .offset = exported.offset(),
                            .length = request_.length,
                            .address = request_.address};
    check_dmabuf(range, set_->iova, set_->access, function_of(choice_.path));
}

bool RegistrationWalk::has_invalid_range(const Nic& nic) const {
    if (nic.job.error->error() != EINVAL) {
        return false;
    }
    const ExportedRange& exported = *nic.job.maker.exported;
    const RangePiece piece = nic.job.pieces[nic.job.failed_piece];
    const DmaBufRange range{
        .fd = exported.fd(), .offset = exported.offset() + piece.offset, .length = piece.length};
    return is_invalid(range, inspect_descriptor(range.fd));
}

void RegistrationWalk::note_refusal(int error) noexcept {
    dmabuf_refused_ = dmabuf_refused_ || error == EOPNOTSUPP || error == kernel_enotsupp;
}

bool RegistrationWalk::choose_all() {
    for (Nic& nic : nics_) {
        set_job(nic, {.path = *path_}, nullptr);
        nic.job.last_mapping = true;
        group_.push_back(&nic);
    }
    return true;
}

void RegistrationWalk::set_job(Nic& nic, const NicPath& path, const ExportedRange* exported) {
    nic.path = path;
    nic.job = {.maker = {.pd = nic.pd,
                         .path = path.path,
                         .access = path.path == on_demand ? set_->access | Access::on_demand
                                                          : set_->access,
                         .address = request_.address,
                         .iova = set_->iova,
                         .exported = exported,
                         .dma_handle = request_.options.dma_handle},
               .pieces = RangePieces(request_.address, request_.length, request_.chunk)};
}

bool RegistrationWalk::complete_dmabuf(const std::vector<Nic*>& group) {
    std::string worked;
    std::size_t count = 0;
    const MappingKind mapping = group.front()->path.mapping;
    for (Nic* const nic : group) {
        if (!nic->job.error) {
            nic->registered = true;
            worked.append(worked.empty() ? "" : ", ").append(nic->pd->context().device_name());
            ++count;
            continue;
        }
        nic->job.regions.clear();
        Attempt& attempt = begin(choice_, mapping);
        // An invalid descriptor or range is invalid with every mapping.
        const bool invalid = has_invalid_range(*nic);
        explain_failure(*nic, attempt);
        note_refusal(attempt.error);
        if (invalid || !refuses_mapping(attempt.error) ||
            !nic->choices.advance(MappingOutcome::refused)) {
            return false;
        }
    }
    if (count != 0) {
        Attempt& attempt = begin(choice_, mapping);
        if (count != nics_.size()) {
            attempt.device = std::move(worked);
        }
    }
    return true;
}

bool RegistrationWalk::complete_address() {
    Attempt& attempt = begin(*path_, function_of(*path_));
    for (Nic& nic : nics_) {
        if (nic.job.error) {
            explain_failure(nic, attempt);
            if (attempt.error == EFAULT && *path_ == peermem) {
                explain_peer_memory(peer_memory_clients(), attempt);
            }
            return false;
        }
        nic.registered = true;
    }
    return true;
}

const ExportedRange& RegistrationWalk::export_for(MappingKind mapping) {
    auto& wanted = exports_[static_cast<std::size_t>(mapping)];
    if (wanted) {
        return *wanted;
    }
    // An earlier call may have requested another mapping, but the exporter may have returned a
    // dma-buf with the wanted one. Use this dma-buf.
    for (const auto& made : exports_) {
        if (made && made->mapping() == mapping) {
            return *made;
        }
    }
    return wanted.emplace(export_range({.length = request_.length}, mapping));
}

RangePieces RegistrationWalk::parts() const noexcept {
    const RangePieces pieces(request_.address, request_.length, request_.chunk);
    if (set_->allocation->single_import) {
        return pieces;
    }
    const std::size_t together = (pieces.count() + most_exported_parts - 1) / most_exported_parts;
    return {request_.address, request_.length, request_.chunk * together};
}

std::vector<ExportedRange> RegistrationWalk::export_parts(std::size_t nics,
                                                          MappingKind mapping) const {
    const RangePieces parts = this->parts();
    const bool single_import = set_->allocation->single_import;
    std::vector<ExportedRange> made;
    if (parts.count() == 1 && (!single_import || nics_.size() == 1)) {
        return made;
    }
    const std::size_t count = parts.count() * (single_import ? nics : 1);
    made.reserve(count);
    try {
        for (std::size_t i = 0; i < count; ++i) {
            made.push_back(export_range(parts[i % parts.count()], mapping));
            if (made.back().mapping() != mapping) {
                throw Error(EIO, "export_range",
                            "a part of the range was exported with another mapping than the range");
            }
        }
    } catch (const Error&) {
        if (single_import) {
            throw;
        }
        // A part could not be exported, for example because the process has reached the limit of
        // open files, or because the exporter has no room for another PCIe mapping. Return no
        // parts: all pieces then use the dma-buf of the whole range.
        made.clear();
    }
    return made;
}

std::uint64_t RegistrationWalk::largest_offset(const ExportedRange& range,
                                               std::span<const ExportedRange> made) const {
    const RangePieces pieces(request_.address, request_.length, request_.chunk);
    if (made.empty() || pieces.count() != parts().count()) {
        return range.offset() + pieces[pieces.count() - 1].offset;
    }
    return std::ranges::max_element(made, {}, &ExportedRange::offset)->offset();
}

ExportedRange RegistrationWalk::export_range(const RangePiece& part, MappingKind mapping) const {
    ExportedRange made =
        detail::export_range(*exporter_, request_.address + part.offset, part.length, mapping);
    if (made.length() < part.length) {
        throw Error(EIO, "export_range",
                    "only " + std::to_string(made.length()) + " of " + std::to_string(part.length) +
                        " bytes were exported");
    }
    return made;
}

bool RegistrationWalk::advance_all(const std::vector<Nic*>& group, MappingOutcome outcome) {
    return std::ranges::all_of(group, [&](Nic* nic) { return nic->choices.advance(outcome); });
}

bool RegistrationWalk::may_be_host(RegistrationPath path) {
    const auto is_allowed = [path](MemoryKind kind) {
        return kind == MemoryKind::pinned_host ||
               (path == on_demand && kind == MemoryKind::managed);
    };
    for (const Owner& owner : owners_) {
        if (!is_allowed(owner.allocation.kind)) {
            std::string remedy;
            if (!listed(dmabuf) && !listed(dmabuf_data_direct)) {
                remedy = is_managed() ? "allow on_demand, which does not pin it"
                                      : "allow the dma-buf paths";
            } else if (is_device() && dmabuf_refused_ && !listed(peermem)) {
                remedy =
                    "allow peermem, which registers device addresses with the help of a kernel "
                    "module";
            }
            refuse(path, request_.function, EPERM,
                   "this is " + std::string(to_string(owner.allocation.kind)) + " memory of " +
                       std::string(owner.exporter->name()) +
                       ", which is never registered as host memory",
                   std::move(remedy));
            return false;
        }
    }
    if (!unanswered_.empty()) {
        refuse(path, request_.function, EPERM,
               "the memory may belong to " + unanswered_ +
                   ", whose query failed; memory of an exporter is not registered as host memory");
        return false;
    }
    const std::uintptr_t end = request_.address + request_.length;
    try {
        for (std::size_t i = 0; i < request_.resolver.exporters().size(); ++i) {
            const std::shared_ptr<Exporter> exporter = request_.resolver.exporters()[i];
            const auto owner = std::ranges::find(owners_, exporter, &Owner::exporter);
            std::uintptr_t next = owner == owners_.end() ? request_.address : owner->end();
            while (next < end) {
                const auto found = detail::find_overlapping(*exporter, next, end - next);
                if (!found) {
                    break;
                }
                if (!is_allowed(found->kind)) {
                    refuse(path, request_.function, EPERM,
                           "the range also contains " + std::string(to_string(found->kind)) +
                               " memory of " + std::string(exporter->name()) + ", at " +
                               hexadecimal(std::max(found->base, request_.address)),
                           "register each allocation on its own");
                    return false;
                }
                next = found->base + found->length;
            }
        }
    } catch (const Error& error) {
        Attempt& attempt = begin(path, error.function());
        fail_attempt(attempt, error);
        attempt.meaning =
            "an exporter cannot determine if it owns a part of the range: " + error.hint();
        return false;
    }
    return true;
}

bool RegistrationWalk::has_on_demand_paging() {
    try {
        const auto without = std::ranges::find_if(nics_, [](const Nic& nic) {
            const std::uint64_t capabilities = nic.pd->context().attributes().odp_capabilities();
            return (capabilities & std::uint64_t{IBV_ODP_SUPPORT}) == 0;
        });
        if (without == nics_.end()) {
            return true;
        }
        refuse(on_demand, request_.function, EOPNOTSUPP,
               without->pd->context().device_name() + " has no on-demand paging (IBV_ODP_SUPPORT)",
               "use the dma-buf paths, or a NIC with on-demand paging such as mlx5");
    } catch (const Error& error) {
        fail_attempt(begin(on_demand, error.function()), error);
    }
    return false;
}

void RegistrationWalk::explain_failure(const Nic& nic, Attempt& attempt) {
    const Context& context = nic.pd->context();
    fail_attempt(attempt, *nic.job.error);
    attempt.device = context.device_name();
    if (is_dmabuf(attempt.path) && !has_invalid_range(nic)) {
        explain_refusal(sysfs::driver_name(context.device_name()), attempt);
    }
    explain_length(context, nic.job.pieces[nic.job.failed_piece].length, attempt);
}

Attempt& RegistrationWalk::begin(RegistrationPath path, const char* call) {
    Attempt& attempt = set_->trail.add();
    attempt.path = path;
    attempt.call = call;
    attempt.exporter = set_->exporter;
    return attempt;
}

Attempt& RegistrationWalk::begin(const MappingChoice& choice, MappingKind mapping) {
    Attempt& attempt = begin(choice.path, function_of(choice.path));
    attempt.mapping = mapping;
    attempt.reason = choice.reason;
    return attempt;
}

const char* RegistrationWalk::function_of(RegistrationPath path) const noexcept {
    if (path == dmabuf_data_direct) {
        return reg_data_direct_function;
    }
    if (request_.options.dma_handle != nullptr) {
        return reg_mr_ex_function;
    }
    return path == dmabuf ? reg_dmabuf_function : reg_mr_function;
}

void RegistrationWalk::fail_attempt(Attempt& attempt, const Error& error) {
    attempt.call = error.function();
    attempt.error = error.error();
    attempt.meaning = error.hint();
    // Unless the memory is device memory, the errno of ibv_reg_mr(3) is more useful than the error
    // of a dma-buf path.
    const bool explains_more = is_dmabuf(answer_path_) && !is_dmabuf(attempt.path) && !is_device();
    if (answer_ == 0 || explains_more) {
        answer_ = attempt.error;
        answer_path_ = attempt.path;
    }
}

void RegistrationWalk::refuse(RegistrationPath path, const char* call, int error,
                              std::string meaning, std::string remedy) {
    Attempt& attempt = begin(path, call);
    attempt.error = error;
    attempt.meaning = std::move(meaning);
    attempt.remedy = std::move(remedy);
}

void RegistrationWalk::fail() const {
    if (request_.options.trail != nullptr) {
        *request_.options.trail = set_->trail;
    }
    int error = answer_;
    if (error == 0) {
        // Find the first failed attempt. Prefer an attempt that did not fail with "unknown memory":
        // the reason why another path was refused says more.
        const auto says_more = [](const Attempt& attempt) {
            return !attempt.worked() && attempt.meaning != unknown_memory;
        };
        auto first = std::ranges::find_if(set_->trail, says_more);
        if (first == set_->trail.end()) {
            first = std::ranges::find(set_->trail, false, &Attempt::worked);
        }
        error = first->error;
    }
    std::string hint = request_.describe() + " could not be registered. " + to_string(set_->trail);
    if (exporter_ == nullptr && unanswered_.empty() && error == EFAULT) {
        hint += " " + request_.resolver.describe_unknown(request_.address);
    }
    throw Error(error, request_.function, hint);
}

void run_walks(std::span<RegistrationWalk> walks, unsigned threads) {
    std::vector<RegistrationJob*> jobs;
    std::vector<RegistrationWalk*> waiting;
    do {
        jobs.clear();
        waiting.clear();
        for (std::size_t i = 0; i < walks.size(); ++i) {
            if (!walks[i].done()) {
                walks[i].prepare(i, jobs);
                waiting.push_back(&walks[i]);
            }
        }
        if (!waiting.empty()) {
            run_jobs(jobs, threads);
        }
        for (RegistrationWalk* const walk : waiting) {
            walk->complete();
        }
    } while (!waiting.empty());
}

} // namespace rdmabuf::detail
