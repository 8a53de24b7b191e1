// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rdmabuf/error.hpp>

namespace rdmabuf::detail {

/// Refers to a vendor's user-space driver library, which was loaded at run time. If the process had
/// already loaded the library, this object refers to the same copy. The library is never unloaded,
/// not even when this object is destroyed: drivers start threads and register functions to run at
/// exit, and the process would crash if the code of the library were unloaded.
class DriverLibrary {
  public:
    /// Returns the first library of @p names that the process has already loaded, for example
    /// "libcuda.so.1", because a second copy of a driver would not know the memory of the first
    /// copy. If none is loaded, loads the first library for which dlopen(3) succeeds.
    /// @param vendor  name of the driver in the error text: "NVIDIA driver"
    /// @param remedy  remedy in the error text
    /// @return the library, or ENOENT with the text of dlerror(3) for each name
    [[nodiscard]] static Result<DriverLibrary> open(std::span<const char* const> names,
                                                    std::string_view vendor,
                                                    std::string_view remedy);

    /// Returns the first library of @p names that the process has already loaded, or std::nullopt.
    /// This function does not load a library.
    /// @throws std::bad_alloc  if memory is exhausted, so that it is unknown if a library is loaded
    [[nodiscard]] static std::optional<DriverLibrary> find_loaded(
        std::span<const char* const> names);

    /// Returns all loaded libraries whose file has the name of a library in @p names, with any
    /// version and in any folder, for example "libcuda.so.1" and "/opt/lib/libcuda.so". This
    /// function does not load a library.
    [[nodiscard]] static std::vector<DriverLibrary> all_loaded(std::span<const char* const> names);

    /// Returns the name or the path with which the library was opened.
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Returns the address of a symbol, or null if the library does not define the symbol.
    [[nodiscard]] void* symbol(const char* name) const noexcept;
    /// Returns true if both objects refer to the same copy of a library.
    [[nodiscard]] bool operator==(const DriverLibrary& other) const noexcept {
        return handle_ == other.handle_;
    }

  private:
    DriverLibrary(std::string name, void* handle) noexcept;

    std::string name_;
    void* handle_;
};

/// Searches for a library that another part of the program may load at any time. Thread safe.
class LoadedLibrarySearch {
  public:
    /// Returns the result of DriverLibrary::find_loaded(). After an unsuccessful search, later
    /// calls search again only if the process has loaded another library since that search.
    [[nodiscard]] std::optional<DriverLibrary> find(std::span<const char* const> names);

  private:
    /// The value of loaded_objects() (libraries loaded so far) at the last unsuccessful search.
    std::atomic<unsigned long long> searched_{0};
};

/// Looks up functions of a driver, and records the names of missing functions.
class SymbolLookup {
  public:
    explicit SymbolLookup(const DriverLibrary& library) noexcept : library_(&library) {}

    /// Looks up an optional function. Sets @p function to null if the library does not define the
    /// function.
    template <class Function>
    void optional(const char* name, Function*& function) noexcept {
        function = reinterpret_cast<Function*>(library_->symbol(name));
    }
    /// Looks up a function that is needed only for exports and allocations. Without this function,
    /// the provider can still find the allocation at an address.
    /// @param since  first version of the driver that has the function, for example "CUDA 11.7"
    template <class Function>
    void needed(const char* name, Function*& function, std::string_view since) {
        optional(name, function);
        if (function == nullptr) {
            note_missing(name, since);
        }
    }
    /// Looks up a required function. Without this function, the provider cannot use the driver, not
    /// even to find the allocation at an address.
    template <class Function>
    void required(const char* name, Function*& function, std::string_view since) {
        needed(name, function, since);
        usable_ = usable_ && function != nullptr;
    }

    /// Returns true if the driver has all functions that were looked up with required().
    [[nodiscard]] bool usable() const noexcept { return usable_; }
    /// Returns the error ENOSYS with the names of all functions that needed() and required() did
    /// not find. Returns std::nullopt if no function is missing.
    [[nodiscard]] std::optional<ErrorInfo> error(std::string_view remedy) const;

  private:
    void note_missing(const char* name, std::string_view since);

    const DriverLibrary* library_;
    std::string missing_;
    bool usable_ = true;
};

} // namespace rdmabuf::detail
