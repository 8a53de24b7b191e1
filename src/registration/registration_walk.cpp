// SPDX-License-Identifier: BSD-3-Clause
#include "registration/registration_walk.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <limits>
#include <utility>

#include <rdmabuf/detail/check.hpp>
#include <rdmabuf/dmabuf_mr.hpp>
#include <rdmabuf/memory_region.hpp>

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
/// What a promise of device memory leaves of them.
constexpr std::array default_device_paths{dmabuf};

constexpr const char* reg_mr = "ibv_reg_mr";
constexpr const char* reg_mr_ex = "ibv_reg_mr_ex";
constexpr const char* reg_dmabuf = "ibv_reg_dmabuf_mr";
constexpr const char* reg_data_direct = "mlx5dv_reg_dmabuf_mr";

bool is_dmabuf(RegistrationPath path) noexcept {
    return path == dmabuf || path == dmabuf_data_direct;
}

std::string describe(std::uintptr_t address, std::size_t length) {
    return std::to_string(length) + " bytes at " + hexadecimal(address);
}

void check_range(const WalkRequest& request) {
    if (request.pds.empty()) {
        throw Error(EINVAL, request.function, "no protection domain to register on");
    }
    if (request.length == 0) {
        throw Error(EINVAL, request.function, "a length of 0: there is nothing to register");
    }
    if (request.length > std::numeric_limits<std::uintptr_t>::max() - request.address) {
        throw Error(EINVAL, request.function,
                    describe(request.address, request.length) + " go past the last address");
    }
}

bool can_import(const Context& context) {
    try {
        return context.dmabuf_import().available;
    } catch (const Error&) {
        return false; // asking is no reason to fail in another way
    }
}

/// EINVAL has many causes: that the NIC has no data-direct function is one only if the NIC says so.
std::string diagnose_data_direct(const Context& context, const DmaBufRange& range, int error) {
    if (error == EINVAL || error == EOPNOTSUPP) {
        const Availability direct = data_direct_of(context.native());
        if (!direct) {
            return direct.reason + "; " + direct.remedy;
        }
    }
    return diagnose_dmabuf(context, range, inspect_descriptor(range.fd), error);
}

[[noreturn]] void conflict(const WalkRequest& request, const std::string& text) {
    throw Error(EINVAL, request.function, "options contradict each other: " + text);
}

void check_dma_handle(const WalkRequest& request) {
    const DmaHandle* const handle = request.options.dma_handle;
    if (handle == nullptr) {
        return;
    }
    if (request.options.paths.has(dmabuf_data_direct)) {
        conflict(request, "mlx5dv_reg_dmabuf_mr takes no DMA handle; leave out one of the two");
    }
    for (const ProtectionDomain& pd : request.pds) {
        if (!(pd.context() == handle->context())) {
            conflict(request, "the DMA handle is of " + handle->context().device_name() +
                                  ", opened elsewhere than a protection domain of " +
                                  pd.context().device_name() + "; make it from that one's context");
        }
    }
}

void check_options(const WalkRequest& request) {
    const RegistrationOptions& options = request.options;
    if (options.device_memory && options.paths.has(host)) {
        conflict(request,
                 "a promise of device memory, and the path host; leave out one of the two");
    }
    if (options.mapping && !options.paths.empty() && !options.paths.has(dmabuf) &&
        !options.paths.has(dmabuf_data_direct)) {
        conflict(request, "a mapping is for the dma-buf paths, and none of them is listed");
    }
    check_dma_handle(request);
}

} // namespace

RegistrationWalk::RegistrationWalk(const WalkRequest& request)
    : request_(request),
      access_(request.options.relaxed_ordering ? request.options.access | Access::relaxed_ordering
                                               : request.options.access),
      iova_(request.options.iova.value_or(has(access_, Access::zero_based) ? 0 : request.address)),
      set_(std::make_unique<RegisteredSet>()) {
    check_range(request);
    check_options(request);
    if (request.length > std::numeric_limits<std::uint64_t>::max() - iova_) {
        throw Error(EINVAL, request.function,
                    "iova " + hexadecimal(iova_) + " + length " + std::to_string(request.length) +
                        " overflows 64 bits");
    }
    nics_.reserve(request.pds.size());
    for (const ProtectionDomain& pd : request.pds) {
        nics_.emplace_back(&pd);
    }
    set_->address = request.address;
    set_->length = request.length;
    set_->iova = iova_;
    set_->access = access_;
}

std::unique_ptr<RegisteredSet> RegistrationWalk::run() {
    ask_exporters();
    if (request_.options.device_memory && exporter_ != nullptr && !is_device()) {
        refuse(paths().front(), request_.function, EFAULT,
               "device memory was promised, and this is " + kind() + " memory",
               "check the pointer, or leave out the promise");
        fail();
    }
    for (const RegistrationPath path : paths()) {
        if (take(path)) {
            for (Nic& nic : nics_) {
                set_->nics.push_back(nic.path);
                std::ranges::move(nic.regions, std::back_inserter(set_->regions));
            }
            if (request_.options.trail != nullptr) {
                *request_.options.trail = set_->trail;
            }
            return std::move(set_);
        }
    }
    fail();
}

std::span<const RegistrationPath> RegistrationWalk::paths() const noexcept {
    if (!request_.options.paths.empty()) {
        return request_.options.paths.paths();
    }
    return request_.options.device_memory ? std::span<const RegistrationPath>(default_device_paths)
                                          : std::span<const RegistrationPath>(default_paths);
}

bool RegistrationWalk::listed(RegistrationPath path) const noexcept {
    return std::ranges::find(paths(), path) != paths().end();
}

void RegistrationWalk::ask_exporters() {
    for (const auto& exporter : request_.resolver.exporters()) {
        try {
            if (auto allocation =
                    detail::find_range(*exporter, request_.address, request_.length)) {
                set_->exporter = exporter->name();
                set_->allocation = std::move(allocation);
                exporter_ = exporter.get();
                return;
            }
        } catch (const Error& error) {
            // The others may know it; but from now on it cannot be said that nobody does.
            unanswered_ = exporter->name();
            Attempt& attempt = begin(paths().front(), error.function());
            fail_attempt(attempt, error);
            attempt.exporter = unanswered_;
            attempt.meaning = "it cannot say whether this is its memory: " + error.hint();
        }
    }
}

bool RegistrationWalk::is_device() const noexcept {
    return exporter_ != nullptr && set_->allocation->kind == MemoryKind::device;
}

bool RegistrationWalk::take(RegistrationPath path) {
    return is_dmabuf(path) ? take_dmabuf(path) : take_address(path);
}

bool RegistrationWalk::take_dmabuf(RegistrationPath path) {
    if (exporter_ == nullptr) {
        // Short enough for a string to hold without an allocation: this is how host memory begins.
        refuse(path, "Resolver::find", EFAULT, "unknown memory");
        return false;
    }
    const RegistrationPath other = path == dmabuf ? dmabuf_data_direct : dmabuf;
    for (Nic& nic : nics_) {
        nic.choices = choose_mappings(
            *set_->allocation, nic.pd->context(),
            {.options = request_.options, .path = path, .other_is_listed = listed(other)});
        nic.next = 0;
    }
    bool possible = true;
    auto open = nics_.begin();
    while (possible && open != nics_.end()) {
        const MappingChoice choice = open->choices[open->next];
        std::vector<Nic*> group;
        for (Nic& nic : nics_) {
            if (nic.regions.empty() && nic.choices[nic.next] == choice) {
                group.push_back(&nic);
            }
        }
        possible = try_choice(choice, group);
        open = std::ranges::find_if(nics_, [](const Nic& nic) { return nic.regions.empty(); });
    }
    exports_ = {};
    if (!possible) {
        drop_regions();
    }
    return possible;
}

bool RegistrationWalk::try_choice(const MappingChoice& choice, const std::vector<Nic*>& group) {
    const bool direct = choice.path == dmabuf_data_direct;
    if (direct) {
        if (Availability there = data_direct_function(); !there) {
            refuse(choice.path, reg_data_direct, ENOSYS, std::move(there.reason),
                   std::move(there.remedy));
            return false;
        }
    }
    const char* const call = direct                                   ? reg_data_direct
                             : request_.options.dma_handle != nullptr ? reg_mr_ex
                                                                      : reg_dmabuf;
    const ExportedRange* range = nullptr;
    try {
        range = &export_for(choice.mapping);
    } catch (const Error& error) {
        Attempt& attempt = begin(choice.path, call);
        attempt.mapping = choice.mapping;
        attempt.reason = choice.reason;
        fail_attempt(attempt, error);
        return advance_all(group, Outcome::not_exported);
    }
    if (choice.use == MappingUse::exact && range->mapping() != choice.mapping) {
        return advance_all(group, Outcome::not_exported);
    }
    std::string worked;
    std::size_t count = 0;
    for (Nic* const nic : group) {
        const auto make = [&](std::size_t offset, std::size_t length) {
            direct ? make_data_direct(*nic, *range, offset, length)
                   : make_dmabuf(*nic, *range, offset, length);
        };
        nic->path = {.path = choice.path, .mapping = range->mapping()};
        std::optional<Error> error = register_pieces(*nic, make);
        if (!error) {
            worked.append(worked.empty() ? "" : ", ").append(nic->pd->context().device_name());
            ++count;
            continue;
        }
        Attempt& attempt = begin(choice.path, call);
        attempt.mapping = range->mapping();
        attempt.reason = choice.reason;
        explain_failure(*nic, *error, attempt);
        if (!refuses_mapping(attempt.error) || !advance(*nic, Outcome::refused)) {
            return false;
        }
    }
    if (count != 0) {
        Attempt& attempt = begin(choice.path, call);
        attempt.mapping = range->mapping();
        attempt.reason = choice.reason;
        if (count != nics_.size()) {
            attempt.device = std::move(worked);
        }
    }
    return true;
}

const ExportedRange& RegistrationWalk::export_for(MappingKind mapping) {
    auto& wanted = exports_[static_cast<std::size_t>(mapping)];
    if (wanted) {
        return *wanted;
    }
    // An exporter that has one mapping only may have returned it for the other one.
    for (const auto& made : exports_) {
        if (made && made->mapping() == mapping) {
            return *made;
        }
    }
    wanted.emplace(detail::export_range(*exporter_, request_.address, request_.length, mapping));
    if (wanted->length() < request_.length) {
        const std::string length = std::to_string(wanted->length());
        wanted.reset();
        throw Error(
            EIO, "export_range",
            "only " + length + " of " + std::to_string(request_.length) + " bytes were exported");
    }
    return *wanted;
}

bool RegistrationWalk::advance(Nic& nic, Outcome outcome) {
    const MappingKind before = nic.choices[nic.next].mapping;
    while (++nic.next < nic.choices.size()) {
        const MappingChoice& choice = nic.choices[nic.next];
        if (outcome == Outcome::not_exported
                ? before == MappingKind::pcie && choice.mapping != before
                : choice.use != MappingUse::unexported) {
            return true;
        }
    }
    return false;
}

bool RegistrationWalk::advance_all(const std::vector<Nic*>& group, Outcome outcome) {
    return std::ranges::all_of(group, [&](Nic* nic) { return advance(*nic, outcome); });
}

bool RegistrationWalk::may_be_host() {
    if (exporter_ != nullptr) {
        if (set_->allocation->kind == MemoryKind::pinned_host) {
            return true;
        }
        std::string remedy;
        if (!listed(dmabuf) && !listed(dmabuf_data_direct)) {
            remedy = "allow the dma-buf paths";
        } else if (is_device() && !listed(peermem)) {
            remedy = "allow peermem, where a kernel module finds the pages of its addresses";
        }
        refuse(host, request_.function, EPERM,
               "this is " + kind() + " memory of " + set_->exporter +
                   ", which is never registered as host memory",
               std::move(remedy));
        return false;
    }
    if (!unanswered_.empty()) {
        refuse(host, request_.function, EPERM,
               "it may be memory of " + unanswered_ +
                   ", which did not answer, and would not be registered as host memory then");
        return false;
    }
    const std::uintptr_t last = request_.address + (request_.length - 1);
    const auto exporters = request_.resolver.exporters();
    auto owner = exporters.end();
    try {
        owner = std::ranges::find_if(exporters, [last](const auto& exporter) {
            return detail::find(*exporter, last).has_value();
        });
    } catch (const Error& error) {
        Attempt& attempt = begin(host, error.function());
        fail_attempt(attempt, error);
        attempt.meaning = "it cannot be said whose memory the range ends in: " + error.hint();
        return false;
    }
    if (owner != exporters.end()) {
        refuse(host, request_.function, EPERM,
               "the range ends in memory of " + std::string((*owner)->name()) +
                   ", and begins elsewhere",
               "register each allocation on its own");
        return false;
    }
    return true;
}

bool RegistrationWalk::take_address(RegistrationPath path) {
    if (path == host && !may_be_host()) {
        return false;
    }
    if (path == peermem && !is_device()) {
        refuse(path, request_.function, EFAULT,
               exporter_ != nullptr ? "this is " + kind() + " memory, and no device address"
                                    : "no exporter knows this as device memory");
        return false;
    }
    Attempt& attempt = begin(path, request_.options.dma_handle != nullptr ? reg_mr_ex : reg_mr);
    for (Nic& nic : nics_) {
        nic.path = {.path = path};
        const std::optional<Error> error = register_pieces(
            nic,
            [&](std::size_t offset, std::size_t length) { make_address(nic, offset, length); });
        if (error) {
            explain_failure(nic, *error, attempt);
            if (attempt.error == EFAULT && path == peermem) {
                explain_peer_memory(peer_memory_clients(), attempt);
            }
            drop_regions();
            return false;
        }
    }
    return true;
}

template <class Make>
std::optional<Error> RegistrationWalk::register_pieces(Nic& nic, Make make) {
    const std::size_t whole = request_.length;
    const std::size_t most = request_.chunk != 0 ? request_.chunk : whole;
    // Up to a page boundary, so that all the others begin at one.
    const std::size_t first = request_.chunk != 0 ? most - request_.address % page_size() : whole;
    nic.regions.reserve((whole - std::min(first, whole) + most - 1) / most + 1);
    for (std::size_t offset = 0, length = 0; offset < whole; offset += length) {
        length = std::min(offset == 0 ? first : most, whole - offset);
        try {
            make(offset, length);
        } catch (const Error& error) {
            nic.regions.clear();
            nic.failed_length = length;
            return error;
        }
    }
    return std::nullopt;
}

void RegistrationWalk::explain_failure(const Nic& nic, const Error& error, Attempt& attempt) {
    const Context& context = nic.pd->context();
    fail_attempt(attempt, error);
    attempt.device = context.device_name();
    if (is_dmabuf(attempt.path)) {
        // Where nothing can be imported, atomics are not the cause.
        const bool atomics = attempt.error == EOPNOTSUPP && can_import(context);
        explain_refusal(sysfs::driver_name(context.device_name()),
                        atomics ? access_ : access_ & ~Access::remote_atomic, attempt);
    }
    explain_length(context, nic.failed_length, attempt);
}

void RegistrationWalk::drop_regions() noexcept {
    for (Nic& nic : nics_) {
        nic.regions.clear();
    }
}

DmaBufRange RegistrationWalk::part_of(const ExportedRange& range, std::size_t offset,
                                      std::size_t length) const noexcept {
    return {.fd = range.fd(),
            .offset = range.offset() + offset,
            .length = length,
            .address = request_.address + offset};
}

void RegistrationWalk::make_dmabuf(Nic& nic, const ExportedRange& range, std::size_t offset,
                                   std::size_t length) {
    const ProtectionDomain& pd = *nic.pd;
    const DmaBufRange part = part_of(range, offset, length);
    const std::uint64_t iova = iova_ + offset;
    if (request_.options.dma_handle == nullptr) {
        nic.regions.emplace_back(DmaBufMR(pd, part, {.access = access_, .iova = iova}));
        return;
    }
    check_dmabuf(part, iova, access_, reg_mr_ex);
    MrInitAttr attributes{};
    attributes.comp_mask = mr_fd | mr_fd_offset;
    attributes.fd = part.fd;
    attributes.fd_offset = part.offset;
    make_with_handle(nic, attributes, iova, length, [&](int error) {
        return diagnose_dmabuf(pd.context(), part, inspect_descriptor(part.fd), error);
    });
}

void RegistrationWalk::make_data_direct(Nic& nic, const ExportedRange& range, std::size_t offset,
                                        std::size_t length) {
    const ProtectionDomain& pd = *nic.pd;
    const DmaBufRange part = part_of(range, offset, length);
    const std::uint64_t iova = iova_ + offset;
    check_dmabuf(part, iova, access_, reg_data_direct);
    // The driver takes whole pages only: what is before the first byte is registered with it.
    const std::size_t before = iova % page_size();
    auto deleter = RegionHandle::deleter_type::holding(pd, nullptr);
    errno = 0;
    RegionHandle handle(
        check_pointer(verbs_extensions().mlx5_reg_dmabuf_mr(
                          pd.native(), part.offset - before, length + before, iova - before,
                          part.fd, static_cast<int>(access_), mlx5_data_direct),
                      reg_data_direct,
                      [&](int error) { return diagnose_data_direct(pd.context(), part, error); }),
        std::move(deleter));
    nic.regions.emplace_back(std::move(handle), iova, length, access_);
}

void RegistrationWalk::make_address(Nic& nic, std::size_t offset, std::size_t length) {
    const ProtectionDomain& pd = *nic.pd;
    auto* const start = reinterpret_cast<void*>(request_.address + offset);
    const std::uint64_t iova = iova_ + offset;
    if (request_.options.dma_handle == nullptr) {
        nic.regions.emplace_back(
            MemoryRegion(pd, start, length, {.access = access_, .iova = iova}));
        return;
    }
    check_host_region(start, length, iova, access_, reg_mr_ex);
    MrInitAttr attributes{};
    attributes.comp_mask = mr_addr;
    attributes.addr = start;
    make_with_handle(nic, attributes, iova, length, [](int error) -> std::string {
        return error == EFAULT ? "these pages cannot be pinned" : std::string();
    });
}

template <class Explain>
void RegistrationWalk::make_with_handle(Nic& nic, MrInitAttr attributes, std::uint64_t iova,
                                        std::size_t length, Explain explain) {
    const ProtectionDomain& pd = *nic.pd;
    attributes.length = length;
    attributes.access = static_cast<int>(access_);
    attributes.comp_mask |= mr_iova | mr_dmah;
    attributes.iova = iova;
    attributes.dmah = request_.options.dma_handle->native();
    auto deleter = RegionHandle::deleter_type::holding(
        pd, std::make_shared<const DmaHandle>(*request_.options.dma_handle));
    errno = 0;
    RegionHandle handle(
        check_pointer(verbs_extensions().reg_mr_ex(pd.native(), &attributes), reg_mr_ex, explain),
        std::move(deleter));
    nic.regions.emplace_back(std::move(handle), iova, length, access_);
}

Attempt& RegistrationWalk::begin(RegistrationPath path, const char* call) {
    Attempt& attempt = set_->trail.add();
    attempt.path = path;
    attempt.call = call;
    attempt.exporter = set_->exporter;
    return attempt;
}

void RegistrationWalk::fail_attempt(Attempt& attempt, const Error& error) {
    attempt.call = error.function();
    attempt.error = error.error();
    attempt.meaning = error.hint();
    if (answer_ == 0) {
        answer_ = attempt.error;
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
    std::string hint = describe(request_.address, request_.length) + " could not be registered. " +
                       to_string(set_->trail);
    if (exporter_ == nullptr && unanswered_.empty()) {
        hint += " " + request_.resolver.describe_unknown(request_.address);
    }
    throw Error(answer_ != 0 ? answer_ : set_->trail[0].error, request_.function, hint);
}

} // namespace rdmabuf::detail
