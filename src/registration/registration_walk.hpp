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
#include <rdmabuf/exported_range.hpp>
#include <rdmabuf/registration.hpp>

#include "registration/mapping_choice.hpp"
#include "registration/registration_jobs.hpp"
#include "registration/registration_request.hpp"

namespace rdmabuf::detail {

/// Tries one path after the other for one range, in steps: prepare() decides what to register and
/// calls the exporter, run_jobs() registers it on any threads, and complete() evaluates the result.
/// Does not move between prepare() and complete().
class RegistrationWalk {
  public:
    /// @throws Error as check_request()
    explicit RegistrationWalk(const RegistrationRequest& request);

    /// Whether the range is registered on all protection domains.
    [[nodiscard]] bool done() const noexcept { return done_; }
    /// Adds the registrations of the next step to @p jobs. Calls exporters.
    /// @param range  the number of this range among the ranges of the jobs
    /// @throws Error with the trail when nothing worked
    void prepare(std::size_t range, std::vector<RegistrationJob*>& jobs);
    /// Evaluates the jobs of this step, which have run.
    void complete();
    /// The result, with the pieces of the first protection domain in the order of their addresses,
    /// then those of the second, and so on. Once, when done().
    [[nodiscard]] std::unique_ptr<RegisteredSet> take();

  private:
    /// One protection domain, and its registrations.
    struct Nic {
        explicit Nic(const ProtectionDomain* p) noexcept : pd(p) {}

        const ProtectionDomain* pd;
        NicPath path{};
        /// The registrations of the current step, and the regions if `registered`.
        RegistrationJob job = {};
        bool registered = false;
        /// For the dma-buf path that is tried.
        MappingChoices choices = {};
    };

    [[nodiscard]] std::string kind() const { return to_string(set_->allocation->kind); }
    [[nodiscard]] bool listed(RegistrationPath path) const noexcept;
    [[nodiscard]] std::span<const RegistrationPath> paths() const noexcept;
    [[nodiscard]] bool is_device() const noexcept;
    [[nodiscard]] bool is_managed() const noexcept;
    // Each returns false, with the reason in the trail, if the path cannot be tried.
    [[nodiscard]] bool may_be_host(RegistrationPath path);
    [[nodiscard]] bool has_on_demand_paging();
    /// Finds the exporter of the range. @throws Error if the caller's promise of device memory is
    /// broken
    void find_exporter();

    /// Checks whether @p path can be tried. @return false, with the reason in the trail, if not
    [[nodiscard]] bool open_path(RegistrationPath path);
    /// Gives back all registrations of the path that was tried.
    void close_path() noexcept;
    // Each chooses the NICs of the next step and sets their jobs, and returns false if the path
    // cannot work on one of them.
    [[nodiscard]] bool choose_dmabuf_group();
    [[nodiscard]] bool choose_all();
    // Each evaluates a step, and returns false if the path cannot work on one of the NICs.
    [[nodiscard]] bool complete_dmabuf(const std::vector<Nic*>& group);
    [[nodiscard]] bool complete_address();

    /// The range with a mapping: exported at the first call. @throws Error what the exporter says
    [[nodiscard]] const ExportedRange& export_for(MappingKind mapping);
    /// Goes on to the next choice of each NIC. @return false if one of them has none
    [[nodiscard]] static bool advance_all(const std::vector<Nic*>& group, MappingOutcome outcome);
    void set_job(Nic& nic, const NicPath& path, const ExportedRange* exported);

    /// The attempt as the trail has it from now on; until the next one begins.
    [[nodiscard]] Attempt& begin(RegistrationPath path, const char* call);
    [[nodiscard]] Attempt& begin(const MappingChoice& choice, MappingKind mapping);
    [[nodiscard]] const char* function_of(RegistrationPath path) const noexcept;
    void fail_attempt(Attempt& attempt, const Error& error);
    void explain_failure(const Nic& nic, Attempt& attempt);
    /// For what is not tried.
    void refuse(RegistrationPath path, const char* call, int error, std::string meaning,
                std::string remedy = {});
    [[noreturn]] void fail() const;

    RegistrationRequest request_;
    /// The one that knows the memory, if any: what it says is in the set.
    const Exporter* exporter_ = nullptr;
    /// Whether the exporters were asked.
    bool asked_ = false;
    /// An exporter that could not say whether the memory is its own.
    std::string unanswered_;
    /// The first errno of a driver or of verbs.
    int answer_ = 0;
    std::vector<Nic> nics_ = {};
    /// The path that is tried, and the position of the path after it.
    std::optional<RegistrationPath> path_ = std::nullopt;
    std::size_t next_path_ = 0;
    /// The NICs of the current step and, on the dma-buf paths, their choice.
    std::vector<Nic*> group_ = {};
    MappingChoice choice_ = {};
    bool done_ = false;
    /// What is exported for the dma-buf path that is tried, by MappingKind.
    std::array<std::optional<ExportedRange>, 2> exports_ = {};
    std::unique_ptr<RegisteredSet> set_;
};

/// Runs all walks to their end, with the registrations of a step of all walks on several threads.
/// @param threads  as RegistrationOptions::threads
/// @throws Error when nothing worked for one of the ranges
void run_walks(std::span<RegistrationWalk> walks, unsigned threads);

} // namespace rdmabuf::detail
