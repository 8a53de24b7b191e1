// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_library.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <utility>

#include "base/address_space.hpp"

namespace rdmabuf::detail {

DriverLibrary::DriverLibrary(std::string name, void* handle) noexcept
    : name_(std::move(name)), handle_(handle) {}

Result<DriverLibrary> DriverLibrary::open(std::span<const char* const> names,
                                          std::string_view vendor, std::string_view remedy) {
    if (auto loaded = find_loaded(names)) {
        return *std::move(loaded);
    }
    std::string tried;
    for (const char* const name : names) {
        // With RTLD_NOW, dlopen(3) fails if a symbol that the driver needs is missing, and
        // dlerror(3) names the symbol. Without RTLD_NOW, a later call of the driver would end the
        // process.
        if (void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
            return DriverLibrary(name, handle);
        }
        const char* const why = ::dlerror();
        tried.append(tried.empty() ? "" : "; ").append(why != nullptr ? why : name);
    }
    return ErrorInfo{ENOENT, "dlopen", "the " + std::string(vendor) + " cannot be loaded: " + tried,
                     remedy};
}

std::optional<DriverLibrary> DriverLibrary::find_loaded(std::span<const char* const> names) {
    for (const char* const name : names) {
        if (void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
            handle != nullptr) {
            return DriverLibrary(name, handle);
        }
    }
    return std::nullopt;
}

std::optional<DriverLibrary> LoadedLibrarySearch::find(std::span<const char* const> names) {
    // The count of loaded libraries is read before the search. If another thread loads a library
    // during the search, the next call of find() reads a different count and searches again.
    const unsigned long long objects = loaded_objects();
    if (objects == searched_.load(std::memory_order_relaxed)) {
        return std::nullopt;
    }
    auto library = DriverLibrary::find_loaded(names);
    if (!library) {
        searched_.store(objects, std::memory_order_relaxed);
    }
    return library;
}

void* DriverLibrary::symbol(const char* name) const noexcept {
    return ::dlsym(handle_, name);
}

void SymbolLookup::note_missing(const char* name, std::string_view since) {
    missing_.append(missing_.empty() ? "" : ", ")
        .append(name)
        .append(" (available since ")
        .append(since)
        .append(")");
}

std::optional<ErrorInfo> SymbolLookup::error(std::string_view remedy) const {
    if (missing_.empty()) {
        return std::nullopt;
    }
    return ErrorInfo{ENOSYS, "dlsym",
                     library_->name() + " is too old: it does not have " + missing_, remedy};
}

} // namespace rdmabuf::detail
