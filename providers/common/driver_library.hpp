// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rdmabuf/result.hpp>

namespace rdmabuf::detail {

/// A vendor's driver in user space, loaded at run time. It stays loaded for as long as the process
/// lives, also when nobody holds this any more: drivers start threads and register functions for
/// exit, and unloading one under either ends the process. A driver that others have loaded already
/// is the same one.
class DriverLibrary {
  public:
    /// Loads the first of @p names that there is: "libcuda.so.1".
    /// @param vendor  whose driver it is, for the reason: "NVIDIA driver"
    /// @param remedy  what to do where none can be loaded
    /// @return ENOENT with the text of dlerror(3) for each name that was tried
    [[nodiscard]] static Result<DriverLibrary> open(std::span<const char* const> names,
                                                    std::string_view vendor,
                                                    std::string_view remedy);

    /// Finds the first of @p names that the process has loaded already. Loads nothing.
    [[nodiscard]] static std::optional<DriverLibrary> find_loaded(
        std::span<const char* const> names);

    /// The one that was loaded.
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Null when the driver does not have it.
    [[nodiscard]] void* symbol(const char* name) const noexcept;

  private:
    DriverLibrary(std::string name, void* handle) noexcept;

    std::string name_;
    void* handle_;
};

/// Finds a library that the process may load at any time. Thread safe.
class LoadedLibrarySearch {
  public:
    /// As DriverLibrary::find_loaded(). After a search without result it searches again only if the
    /// process has loaded another object since then.
    [[nodiscard]] std::optional<DriverLibrary> find(std::span<const char* const> names);

  private:
    /// loaded_objects() at the last search without result.
    std::atomic<unsigned long long> searched_{0};
};

/// Fills a table of functions from a driver, and notes which functions the driver lacks.
class SymbolLookup {
  public:
    explicit SymbolLookup(const DriverLibrary& library) noexcept : library_(&library) {}

    /// Left null when the driver does not have it.
    template <class Function>
    void optional(const char* name, Function*& function) noexcept {
        function = reinterpret_cast<Function*>(library_->symbol(name));
    }
    /// Looks up a function that only export and allocation need. A driver without it can still say
    /// whose memory an address is.
    /// @param since  the first driver that has it: "CUDA 11.7"
    template <class Function>
    void needed(const char* name, Function*& function, std::string_view since) {
        optional(name, function);
        if (function == nullptr) {
            note_missing(name, since);
        }
    }
    /// Looks up a function without which the driver cannot say whose memory an address is.
    template <class Function>
    void required(const char* name, Function*& function, std::string_view since) {
        needed(name, function, since);
        usable_ = usable_ && function != nullptr;
    }

    /// Whether the driver has all required functions.
    [[nodiscard]] bool usable() const noexcept { return usable_; }
    /// Why the driver is too old: names all functions that are missing, needed and required ones.
    /// None when no function is missing.
    [[nodiscard]] std::optional<ErrorInfo> error(std::string_view remedy) const;

  private:
    void note_missing(const char* name, std::string_view since);

    const DriverLibrary* library_;
    std::string missing_;
    bool usable_ = true;
};

} // namespace rdmabuf::detail
