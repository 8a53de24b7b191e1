// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <rdmabuf/detail/config.hpp>
#include <rdmabuf/error.hpp>
#include <rdmabuf/resolver.hpp>

#include "base/text.hpp"
#include "memory/exporter_calls.hpp"

#if RDMABUF_HAVE_PROVIDER_CUDA
#include <rdmabuf/providers/cuda.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
#include <rdmabuf/providers/level_zero.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
#include <rdmabuf/providers/rocm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_HABANA
#include <rdmabuf/providers/habana.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_NEURON
#include <rdmabuf/providers/neuron.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
#include <rdmabuf/providers/drm.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
#include <rdmabuf/providers/dma_heap.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_UDMABUF
#include <rdmabuf/providers/udmabuf.hpp>
#endif
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
#include <rdmabuf/providers/external.hpp>
#endif

namespace rdmabuf {
namespace {

/// Returns the names of the exporters for which @p wanted returns true, for example "drm, udmabuf".
/// Returns "none" if there is no such exporter.
template <class Predicate>
std::string names_of(std::span<const std::shared_ptr<Exporter>> exporters, Predicate wanted) {
    std::string list;
    for (const auto& exporter : exporters) {
        if (wanted(*exporter)) {
            list.append(list.empty() ? "" : ", ").append(exporter->name());
        }
    }
    return list.empty() ? "none" : list;
}

bool is_external([[maybe_unused]] const std::shared_ptr<Exporter>& exporter) {
#if RDMABUF_HAVE_PROVIDER_EXTERNAL
    return dynamic_cast<const ExternalExporter*>(exporter.get()) != nullptr;
#else
    return false;
#endif
}

} // namespace

Resolver::Resolver(std::vector<std::shared_ptr<Exporter>> exporters) {
    exporters_.reserve(exporters.size());
    for (auto& exporter : exporters) {
        add(std::move(exporter));
    }
}

Resolver Resolver::system() {
    Resolver all;
#if RDMABUF_HAVE_PROVIDER_CUDA
    all.add(make_cuda_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_LEVEL_ZERO
    all.add(make_level_zero_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_ROCM
    all.add(make_rocm_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_HABANA
    all.add(make_habana_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_NEURON
    all.add(make_neuron_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_DRM
    all.add(make_drm_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_DMA_HEAP
    all.add(make_dma_heap_exporter());
#endif
#if RDMABUF_HAVE_PROVIDER_UDMABUF
    all.add(make_udmabuf_exporter());
#endif
    return all;
}

void Resolver::add(std::shared_ptr<Exporter> exporter) {
    if (exporter == nullptr) {
        throw Error(EINVAL, "Resolver", "the pointer to an exporter is null");
    }
    if (exporter->name().empty()) {
        throw Error(EINVAL, "Resolver", "the name of an exporter is empty");
    }
    if (std::ranges::find(exporters_, exporter) != exporters_.end()) {
        throw Error(EINVAL, "Resolver",
                    "the exporter '" + std::string(exporter->name()) + "' is in the list already");
    }
    exporters_.push_back(std::move(exporter));
    std::stable_partition(exporters_.begin(), exporters_.end(), is_external);
}

std::optional<Resolver::Match> Resolver::try_find(std::uintptr_t address) const {
    std::optional<Match> pinned;
    std::optional<Error> unanswered;
    // Use an index, because a query may call add(), which invalidates iterators.
    for (std::size_t i = 0; i < exporters_.size(); ++i) { // NOLINT(modernize-loop-convert)
        const std::shared_ptr<Exporter> exporter = exporters_[i];
        try {
            if (auto allocation = detail::find(*exporter, address)) {
                const bool is_pinned = allocation->kind == MemoryKind::pinned_host;
                Match match{.exporter = exporter, .allocation = *std::move(allocation)};
                if (!is_pinned) {
                    return match;
                }
                if (!pinned) {
                    pinned = std::move(match);
                }
            }
        } catch (const Error& error) {
            // Keep the first error, and continue: another exporter may find the allocation.
            if (!unanswered) {
                unanswered.emplace(
                    error.error(), error.function(),
                    std::string(exporter->name()) + " cannot determine if it owns the memory at " +
                        detail::hexadecimal(address) + ": " + std::string(error.hint()));
            }
        }
    }
    if (unanswered && !pinned) {
        throw Error(*unanswered);
    }
    return pinned;
}

std::string Resolver::describe_unknown(std::uintptr_t address) const {
    std::string text = "no exporter knows the address " + detail::hexadecimal(address);
    if (exporters_.empty()) {
        return text + ": the resolver has no exporters; add one, or use Resolver::system()";
    }
    // The text does not contain the results of Exporter::availability(), because that function can
    // initialise the drivers.
    return text +
           ", of these exporters: " + names_of(exporters_, [](const Exporter&) { return true; }) +
           ". It is host memory, or it was freed, or this process has not initialised its driver "
           "(a "
           "child of fork(2) cannot use that of its parent)";
}

Resolver::Match Resolver::find(std::uintptr_t address) const {
    if (auto match = try_find(address)) {
        return *std::move(match);
    }
    throw Error(EFAULT, "Resolver::find", describe_unknown(address));
}

ExportedRange Resolver::export_range(std::uintptr_t address, std::size_t length,
                                     MappingKind mapping) const {
    return detail::export_range(*find(address).exporter, address, length, mapping);
}

std::shared_ptr<Exporter> Resolver::exporter(std::string_view name) const {
    for (const auto& exporter : exporters_) {
        if (exporter->name() == name) {
            return exporter;
        }
    }
    throw Error(ENOENT, "Resolver::exporter",
                "no exporter is called '" + std::string(name) +
                    "'; there are: " + names_of(exporters_, [](const Exporter&) { return true; }));
}

std::shared_ptr<Allocator> Resolver::allocator(std::string_view name) const {
    if (auto found = std::dynamic_pointer_cast<Allocator>(exporter(name))) {
        return found;
    }
    const auto allocates = [](const Exporter& exporter) {
        return dynamic_cast<const Allocator*>(&exporter) != nullptr;
    };
    throw Error(
        ENOTSUP, "Resolver::allocator",
        "the exporter '" + std::string(name) +
            "' cannot allocate memory; exporters that can: " + names_of(exporters_, allocates));
}

} // namespace rdmabuf
