// SPDX-License-Identifier: BSD-3-Clause
#include "common/driver_library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <new>
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

namespace {

/// Returns the name of a library file without its folder and its version: "libcuda.so".
std::string_view stem(std::string_view file) noexcept {
    constexpr std::string_view suffix = ".so";
    file.remove_prefix(file.rfind('/') + 1); // rfind() returns npos without a folder: npos + 1 is 0
    const std::size_t end = file.find(suffix);
    return end == std::string_view::npos ? file : file.substr(0, end + suffix.size());
}

/// Collects the paths of the loaded libraries whose name is in `names`. Compares only the results
/// of stem(), so that the folder and the version do not matter.
struct Paths {
    std::span<const char* const> names;
    std::vector<std::string> found = {};
    std::exception_ptr error = nullptr;

    /// Adds the path of @p object to `found` if it is a library with one of the names. An exception
    /// must not pass through dl_iterate_phdr(3), so it is stored in `error`.
    static int add(dl_phdr_info* object, std::size_t /*size*/, void* data) noexcept {
        auto& paths = *static_cast<Paths*>(data);
        const std::string_view path = object->dlpi_name;
        const auto is_path = [path](const char* name) { return stem(name) == stem(path); };
        try {
            if (std::ranges::any_of(paths.names, is_path)) {
                paths.found.emplace_back(path);
            }
        } catch (...) {
            paths.error = std::current_exception();
        }
        return paths.error != nullptr ? 1 : 0;
    }
};

std::vector<std::string> loaded_paths(std::span<const char* const> names) {
    Paths paths{.names = names};
    ::dl_iterate_phdr(&Paths::add, &paths);
    if (paths.error != nullptr) {
        std::rethrow_exception(paths.error);
    }
    return std::move(paths.found);
}

/// Returns the handle of a loaded library. Returns nullptr if the library is not loaded, or if
/// dlopen(3) has no memory.
void* handle_of(const char* name) noexcept {
    return ::dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
}

} // namespace

std::optional<DriverLibrary> DriverLibrary::find_loaded(std::span<const char* const> names) {
    for (const char* const name : names) {
        if (void* const handle = handle_of(name); handle != nullptr) {
            return DriverLibrary(name, handle);
        }
    }
    // handle_of() also returns nullptr if memory is exhausted, so the libraries in `names` may be
    // loaded nevertheless. loaded_paths() lists loaded libraries, in any version and any folder. If
    // handle_of() fails for one of them, memory is exhausted.
    for (const std::string& path : loaded_paths(names)) {
        if (void* const handle = handle_of(path.c_str()); handle != nullptr) {
            ::dlclose(handle);
        } else {
            throw std::bad_alloc();
        }
    }
    return std::nullopt;
}

std::vector<DriverLibrary> DriverLibrary::all_loaded(std::span<const char* const> names) {
    std::vector<DriverLibrary> all;
    for (const std::string& path : loaded_paths(names)) {
        const std::array name{path.c_str()};
        if (auto library = find_loaded(name)) {
            all.push_back(*std::move(library));
        }
    }
    return all;
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
